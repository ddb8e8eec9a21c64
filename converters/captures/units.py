"""The parts of a capture that can be converted apart: as a rule, one per rank.

Whatever may have to be put together stays in one unit: a system profile with every framework
trace that it may tell more about, and the sessions of one process.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from neuron_tb.converters.captures.capture import Capture, Found
from neuron_tb.converters.captures.heads import head_of
from neuron_tb.converters.findings import Findings

_RANK = re.compile(rb'"distributedInfo"\s*:\s*\{[^{}]*?"rank"\s*:\s*(\d{1,9})')
_GZIP_FACTOR = 8
"""Kineto's JSON is about so many times smaller as gzip."""


@dataclass(frozen=True, slots=True)
class Unit:
    """A part of a capture: what it holds, its size in bytes of JSON, and its ranks.

    ``ranks``: what names or first bytes of the framework traces say, None where they say nothing;
    to ask costs nothing.
    """

    found: Found
    size: int
    ranks: tuple[int | None, ...]

    @property
    def label(self) -> str:
        """What to call it: its first file or its directory, with the rank."""
        capture = self.found.captures[0]
        files = self.found.files()
        place = str(files[0] if len(files) == 1 else capture.directory)
        known = [str(rank) for rank in self.ranks if rank is not None]
        return f"rank {', '.join(known)} ({place})" if known else place


def units_of(found: Found) -> list[Unit]:
    """The parts of a capture, in the capture's order; a single one where nothing can be parted."""
    captures = [part for capture in found.captures for part in _parts(capture)]
    groups = _grouped(captures)
    units = []
    for number, group in enumerate(groups):
        own = replace(found, captures=group)
        if number:  # what is told about the whole capture is told once
            own = replace(
                own,
                only_listed=[],
                older=[],
                own_results=[],
                unreadable=[],
                findings=Findings(),
            )
        units.append(Unit(own, _size(own.files()), _ranks(group)))
    return units


def _parts(capture: Capture) -> list[Capture]:
    """A directory of several framework traces alone holds a rank per file."""
    if len(capture.framework) < 2 or capture.system or capture.raw or capture.device:
        return [capture]
    return [replace(capture, framework=[path]) for path in capture.framework]


def _grouped(captures: Sequence[Capture]) -> list[list[Capture]]:
    """Captures that have to be read together."""
    complete = [c for c in captures if c.framework and c.system]
    lonely = [c for c in captures if not c.framework and c.pid is None]
    if lonely and (len(complete) < len(captures) or any(c.device for c in lonely)):
        return [list(captures)]  # a profile that any trace here may belong to
    group_of: dict[object, int] = {}
    groups: list[list[Capture]] = []
    for capture in captures:
        keys = _keys(capture)
        known = sorted({group_of[key] for key in keys if key in group_of})
        target = known[0] if known else len(groups)
        if not known:
            groups.append([])
        for other in known[1:]:
            groups[target] += groups[other]
            groups[other] = []
            group_of.update({k: target for k, g in group_of.items() if g == other})
        groups[target].append(capture)
        group_of.update(dict.fromkeys(keys, target))
    return [group for group in groups if group]


def _keys(capture: Capture) -> list[object]:
    keys: list[object] = [path.resolve() for path in capture.system]
    if capture.pid is not None:
        keys.append((capture.host, capture.pid))
    return keys or [object()]


def _size(files: Iterable[Path]) -> int:
    total = 0
    for path in files:
        inside = path.rglob("*") if path.is_dir() else [path]
        for file in inside:
            factor = _GZIP_FACTOR if file.suffix == ".gz" else 1
            total += file.stat().st_size * factor if file.is_file() else 0
    return total


def _ranks(captures: Sequence[Capture]) -> tuple[int | None, ...]:
    return tuple(_rank(capture, path) for capture in captures for path in capture.framework)


def _rank(capture: Capture, path: Path) -> int | None:
    match = _RANK.search(head_of(path))
    return int(match[1]) if match else capture.context(path).rank
