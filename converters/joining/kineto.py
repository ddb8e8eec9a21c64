"""Kineto's files of several ranks in one run's folder, on one base time."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from neuron_tb.converters.joining import Identity, Part, reading
from neuron_tb.converters.joining.files import take
from neuron_tb.converters.joining.json_files import head_of, identity_of, rewrite, slices_of
from neuron_tb.converters.storage.output import refuse_overwrite, replacing_directory
from neuron_tb.converters.writers import Destination, Written
from neuron_tb.converters.writers.chrome_json import LARGEST_TIME_US
from neuron_tb.converters.writers.kineto.write import TARGET, ranks_of, refuse_foreign_files

_BASE = "baseTimeNanoseconds"


def join(files: Sequence[Part], destination: Destination) -> list[Written]:
    """Write ``OUT/kineto/RUN/rankN.trace.json.gz``, one file per process.

    HTA compares the times of ranks without a look at their bases: all get the earliest one,
    as far as doubles go. A process without a rank gets the lowest free number.
    """
    folder = destination.out / TARGET / destination.run
    refuse_overwrite(folder, destination.force)
    refuse_foreign_files(folder)
    found = [(_identity(head), part, head) for part in files for head in [_head(part.path)]]
    found.sort(key=lambda item: item[0].order)
    ranks = ranks_of([identity.rank for identity, _, _ in found])
    bases = [head[_BASE] + part.later_ns for _, part, head in found if _has_base(head)]
    written = []
    with replacing_directory(folder) as temporary:
        for rank, (_, part, head) in zip(ranks, found, strict=True):
            name = f"rank{rank}.trace.json.gz"
            _place(part, temporary / name, head, rank, min(bases, default=0))
            written.append(Written(TARGET, folder / name, slices_of(head)))
    return written


def _head(path: Path) -> dict[str, Any]:
    head = head_of(path)
    with reading(path):
        head["distributedInfo"] = dict(head.get("distributedInfo") or {})
    return head


def _has_base(head: dict[str, Any]) -> bool:
    return isinstance(head.get(_BASE), int)


def _identity(head: dict[str, Any]) -> Identity:
    rank = head["distributedInfo"].get("rank")
    return identity_of(head) or Identity("", 0, rank if isinstance(rank, int) else None)


def _place(part: Part, place: Path, head: dict[str, Any], rank: int, base_ns: int) -> None:
    known = head["distributedInfo"]
    later_ns = head[_BASE] + part.later_ns - base_ns if _has_base(head) else part.later_ns
    if later_ns >= LARGEST_TIME_US * 1000:
        # So far from the others, a double would round its times.
        base_ns, later_ns = base_ns + later_ns, 0
    if known.get("rank") == rank and not later_ns and not part.later_ns:
        take(part, place)
        return
    head["distributedInfo"] = {**known, "rank": rank}
    if _BASE in head:
        head[_BASE] = base_ns
    rewrite(part.path, place, head, later_ns, part.later_ns)
