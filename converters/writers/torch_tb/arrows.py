"""Whether arrows from forward to backward operators would lose rows in the plugin."""

from __future__ import annotations

import numpy as np

from neuron_tb.converters.model import NONE, Bools, Int32, Role
from neuron_tb.converters.writers.cuda.translation import Translation
from neuron_tb.converters.writers.torch_tb.words import Names


def arrows_would_lose_rows(
    t: Translation,
    names: Names,
    tree: Bools,
    step: Bools,
    parent: Int32,
    source: Int32,
    target: Int32,
) -> str:
    """Why the plugin must not get arrows from forward to backward operators, "" if it may.

    With modules in a capture it rebuilds the tree from these arrows: backward work without
    an arrow, or whose forward operator is in no module, drops out of all tables, and a
    module without backward work loses the file.
    """
    module = tree & (t.role == Role.PYTHON)
    if not module.any():
        return ""
    backward = tree & names.backward[t.name]
    top = backward & ((parent == NONE) | step[parent])
    root = _ancestor(parent, target, top)
    accumulate = t.name == names.accumulate
    matched, count = np.unique(root[root != NONE], return_counts=True)
    groups = np.flatnonzero(top & ~accumulate)
    in_module = _ancestor(parent, source, module) != NONE
    around_sources = np.zeros(len(module), np.bool_)
    row = source.copy()
    while (row != NONE).any():
        around_sources[row[row != NONE]] = True
        row = np.where(row != NONE, parent[row], NONE)
    first = np.flatnonzero(top)
    first = first[np.lexsort((t.start_ns[first], t.place[first]))]
    starts_group = np.diff(t.place[first], prepend=NONE) != 0
    fine = (
        len(matched) == len(groups)
        and not accumulate[matched].any()
        and bool((count == 1).all())
        and bool((root != NONE).all())
        and bool(in_module.all())
        and bool(around_sources[module].all())
        and not accumulate[first[starts_group]].any()
        and bool(
            (_ancestor(parent, np.flatnonzero(module).astype(np.int32), backward) == NONE).all()
        )
    )
    return (
        ""
        if fine
        else (
            "arrows from forward to backward operators keep the source's category: with them "
            "the plugin would drop backward work that lies in no module from its tables"
        )
    )


def _ancestor(parent: Int32, rows: Int32, among: Bools) -> Int32:
    """The nearest row strictly around each row that is one of ``among``, NONE without one."""
    row = parent[rows]
    searching = (row != NONE) & ~among[row]
    while searching.any():
        row = np.where(searching, parent[row], row)
        searching = (row != NONE) & ~among[row]
    return row
