"""Collectives for the plugin's Distributed view, which knows them by the names of host rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from neuron_tb.converters.model import NONE, Bools, Int32, Int64
from neuron_tb.converters.model.lanes import lay_out
from neuron_tb.converters.writers.cuda.events import Events, fresh_numbers
from neuron_tb.converters.writers.cuda.translation import Translation
from neuron_tb.converters.writers.cuda.words import collective
from neuron_tb.converters.writers.edits import EXTERNAL_ID, decoded_lazily
from neuron_tb.converters.writers.torch_tb.words import COLLECTIVES, SIZE_KEYS, Names, tensor_sizes


@dataclass(frozen=True, slots=True)
class Collectives:
    """Kernels that are collectives: number, kind, the source's own row of the call, operator."""

    kernel: NDArray[np.intp]
    kind: list[str]
    row: Int32
    operator: Int32


def find_collectives(t: Translation, names: Names, known_collective: Bools) -> Collectives:
    """Kernels that are collectives, and the source's own row of that call where it has one."""
    kernels, calls = t.kernels, t.calls
    executions = t.trace.executions.take(kernels.execution)
    own = t.trace.slices.name[executions.slice]
    operator = calls.operator[kernels.call]
    by_operator = np.where(operator != NONE, t.name[operator], own)
    kinds: list[str] = []
    found: list[int] = []
    for number in np.flatnonzero(names.any_collective[by_operator] | names.any_collective[own]):
        if executions.transfer[number]:
            continue
        strings = t.trace.strings
        kind = collective(strings[by_operator[number]]) or collective(strings[own[number]])
        if kind in COLLECTIVES:
            found.append(int(number))
            kinds.append(str(kind))
        else:
            t.findings.add(
                "collective_not_translated",
                "the plugin's Distributed view has no word for some collectives "
                "(all-to-all, send, receive, barrier)",
            )
    kernel = np.array(found, np.intp)
    row = np.where(operator != NONE, operator, calls.row[kernels.call])[kernel]
    known = np.full(len(kernel), NONE, np.int32)
    while (row != NONE).any():
        hit = (row != NONE) & known_collective[row] & (known == NONE)
        known[hit] = row[hit]
        row = np.where(row != NONE, t.parent[row], NONE)
    return Collectives(kernel, kinds, known, operator[kernel])


def add_collectives(
    events: Events,
    names: Names,
    known_collective: Bools,
    found: Collectives,
    ids: Int64,
    of_kernel: Int64,
    unsized: Bools,
) -> None:
    """The Distributed view wants a host row as long as the device work, with an id of its own.

    The operator keeps its device time: it is found through the call, which keeps the
    operator's id. ``unsized``: rows whose recorded sizes are no such.
    """
    t = events.translation
    kernels = t.kernels
    known = found.row != NONE
    of_kernel[found.kernel[known]] = ids[found.row[known]]
    new = np.flatnonzero(~known)
    fresh = fresh_numbers(ids, len(new))
    of_kernel[found.kernel[new]] = fresh
    if len(names.libraries(t.name[known_collective]) | ({"nccl"} if len(new) else set())) > 1:
        t.findings.add(
            "collective_libraries_mixed",
            "the capture has collectives of several libraries: the plugin shows no "
            "Distributed view then",
        )
    if not len(new):
        return
    rows = found.kernel[new]
    lane = lay_out(
        np.zeros(len(rows), np.int32), kernels.start_ns[rows], kernels.duration_ns[rows]
    ).lane
    places = [
        t.new_place("collectives on the device (for the Distributed view)")
        for _ in range(int(lane.max(initial=0)) + 1)
    ]
    names_of = [f"nccl:{found.kind[number]}" for number in new.tolist()]
    added = events.add(
        kernels.start_ns[rows],
        kernels.duration_ns[rows],
        "user_annotation",
        events.words.intern_all(names_of, len(names_of)),
        np.array(places, np.int32)[lane],
        "the device's interval of a collective, under the name that the Distributed view knows",
    )
    events.edits.set_numbers(EXTERNAL_ID, added, fresh)
    sizes = _sizes_of(t, unsized, found.operator[new])
    for key in ("Input Dims", "Input type"):
        having = [number for number, size in enumerate(sizes) if key in size]
        rows_with = [int(added[number]) for number in having]
        events.edits.set_values(key, rows_with, [sizes[number][key] for number in having])


def _sizes_of(t: Translation, unsized: Bools, operators: Int32) -> list[dict[str, Any]]:
    """Dimensions and types of each operator's tensors, said by it or by a row inside it."""
    found: dict[int, dict[str, Any]] = {}
    owner = np.full(len(t.rows), NONE, np.int32)
    inside = np.unique(operators[operators != NONE])
    owner[inside] = inside
    while len(inside):
        for row in inside.tolist():
            values = decoded_lazily(t.trace.raw_args(int(t.rows[row])))
            if unsized[row]:
                values = {key: text for key, text in values.items() if key not in SIZE_KEYS}
            sizes = tensor_sizes(values)
            if sizes:
                found.setdefault(int(owner[row]), sizes)
        children = np.flatnonzero((t.parent != NONE) & np.isin(t.parent, inside))
        owner[children] = owner[t.parent[children]]
        inside = children.astype(np.int32)
    return [found.get(operator, {}) for operator in operators.tolist()]
