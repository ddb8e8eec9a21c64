"""Seeded captures of ranks whose every execution is known: what ran where, when, and for what.

All times of the truth are true times. The framework's trace and the system profile of a rank each
have a clock of their own, which may be off by a constant, and the profile's may drift as well.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.makers import BASE_NS, Event, write_json

SPACING_NS = 40_000
"""Operators follow each other about so fast: less than the offsets that must be found."""

_NAMES = ("aten::mul", "aten::add", "aten::mm", "aten::gelu", "aten::_softmax")


@dataclass(frozen=True)
class Ran:
    """One execution: the union of its rows, and what caused it."""

    rank: int
    core: int
    step: int
    operator: str
    start_ns: int
    end_ns: int
    exec_id: int
    rows: tuple[tuple[int, int, int], ...]
    """Physical core, start and end of each device row."""

    @property
    def length_ns(self) -> int:
        return self.end_ns - self.start_ns


@dataclass
class Rank:
    """One rank: its clocks, and everything that it recorded, in true time."""

    rank: int
    host: str
    pid: int
    framework_ns: int = 0
    profile_ns: int = 0
    drift_ppm: float = 0.0
    jitter_ns: int = 0
    ran: list[Ran] = field(default_factory=list)
    framework: list[Event] = field(default_factory=list)
    profile: list[Event] = field(default_factory=list)

    def at_framework(self, true_ns: int) -> int:
        return true_ns + self.framework_ns

    def at_profile(self, true_ns: int) -> int:
        return true_ns + self.profile_ns + round((true_ns - BASE_NS) * self.drift_ppm / 1e6)


@dataclass(frozen=True)
class Shape:
    """What captures look like. ``identified``: rows of both files share sequence ids."""

    ranks: int = 1
    ranks_per_host: int = 4
    cores: int = 1
    lnc2: bool = True
    steps: int = 3
    operators: int = 8
    first_step: int = 5
    identified: bool = True
    collectives: bool = True


def make(seed: int, shape: Shape) -> list[Rank]:
    """The ranks of a capture."""
    draw = random.Random(seed)
    ranks = [
        Rank(number, f"i-0truth{number // shape.ranks_per_host:02d}", 500 + number)
        for number in range(shape.ranks)
    ]
    now = BASE_NS + 1_000_000
    makers = [_Maker(rank, shape, random.Random(draw.random()), now) for rank in ranks]
    for step in range(shape.first_step, shape.first_step + shape.steps):
        ends = [maker.step(step) for maker in makers]
        together = max(ends) + draw.randrange(5_000, 20_000)
        for maker in makers:
            maker.finish(step, together)
    return ranks


class _Maker:
    def __init__(self, rank: Rank, shape: Shape, draw: random.Random, now: int) -> None:
        self.rank, self.shape, self.draw, self.now = rank, shape, draw, now
        self.free = [now] * shape.cores
        self.ids = self.external = 0
        self.begin = now

    def step(self, number: int) -> int:
        """Everything up to the step's collective; returns when the last core is done."""
        self.begin = self.now
        self.now += self.draw.randrange(2_000, 9_000)
        for _ in range(self.shape.operators):
            self._operator(number)
            self.now += self.draw.randrange(SPACING_NS // 2, SPACING_NS)
        return max([self.now, *self.free])

    def finish(self, number: int, together: int) -> None:
        """The collective that ends everywhere at once, and the step's end."""
        if self.shape.collectives:
            start = max([self.now, *self.free]) + self.draw.randrange(1_000, 3_000)
            row = {"op_id": number, "replica_group": 0, "device_core_idx": 0}
            self._profile("cc_running", start, together, nc_idx=0, **row)
        self.now = together + self.draw.randrange(3_000, 6_000)
        self._framework("user_annotation", f"ProfilerStep#{number}", self.begin, self.now)
        self.free = [max(free, together) for free in self.free]
        self.now += self.draw.randrange(500, 2_000)

    def _operator(self, step: int) -> None:
        draw, core = self.draw, self.draw.randrange(self.shape.cores)
        name, begin = draw.choice(_NAMES), self.now
        self.ids += 1
        self.external += 1
        sequence = (core + 1) << 48 | self.ids
        called = begin + draw.randrange(500, 3_000)
        returned = called + draw.randrange(2_000, 8_000)
        self.now = returned + draw.randrange(200, 3_000)
        start = max(returned + draw.randrange(1_500, 4_000), self.free[core])
        rows = self._rows(core, start, draw.randrange(3_000, 60_000))
        end = max(row[2] for row in rows)
        self.free[core] = end + draw.randrange(500, 2_000)
        self.rank.ran.append(
            Ran(self.rank.rank, core, step, name, start, end, self.ids, tuple(rows))
        )
        ids = {"External id": self.external}
        self._framework("cpu_op", name, begin, self.now, ids)
        if self.shape.identified:
            seen = {**ids, "nrt_sequence_id": sequence}
            waited = end + draw.randrange(3_000, 9_000)
            self._framework("privateuse1_driver", name, returned, waited, seen, pid=0, tid=0)
        keys = {"nrta_seq_id": sequence, "thread_id": self.rank.pid}
        self._profile("nrta_execute_schedule", called, returned, nc_idx=core, **keys)
        keys = {"nrta_seq_id": sequence, "thread_id": self.rank.pid + 7, "exec_id": self.ids}
        waited = end + draw.randrange(500, 2_500)
        self._profile("kbl_exec_wait", returned + 300, waited, nc_idx=core, **keys)
        for physical, begins, ends in rows:
            keys = {"device_core_idx": physical, "exec_id": self.ids}
            self._profile("nc_exec_running", begins, ends, nc_idx=core, **keys)

    def _rows(self, core: int, start: int, length: int) -> list[tuple[int, int, int]]:
        if not self.shape.lnc2:
            return [(core, start, start + length)]
        late, longer = self.draw.randrange(1, 300), self.draw.randrange(1, 300)
        second = start + late
        return [
            (2 * core, start, start + length),
            (2 * core + 1, second, second + length + longer),
        ]

    def _framework(
        self,
        category: str,
        name: str,
        start: int,
        end: int,
        args: dict[str, Any] | None = None,
        **place: int,
    ) -> None:
        pid = self.rank.pid
        event = {"ph": "X", "cat": category, "name": name, "pid": pid, "tid": pid, **place}
        self.rank.framework.append(event | {"ts": start, "dur": end - start, "args": args or {}})

    def _profile(self, name: str, start: int, end: int, **keys: Any) -> None:
        row = {"name": name, "timestamp": start, "duration": end - start, **keys}
        self.rank.profile.append(row)


def write(folder: Path, ranks: list[Rank]) -> Path:
    """The captures as files, each on its own clock; returns the folder."""
    for rank in ranks:
        place = folder / f"{rank.host}_pid_{rank.pid}" / str(BASE_NS)
        write_json(place / "trace.json", _trace(rank, len(ranks)))
        write_json(place / "system_profile.json", {"trace_event": _rows(rank)})
    return folder


def _trace(rank: Rank, world: int) -> dict[str, Any]:
    events = [
        event | {"ts": _us(rank.at_framework(event["ts"]) - BASE_NS), "dur": _us(event["dur"])}
        for event in rank.framework
    ]
    info = {"backend": "neuron", "rank": rank.rank, "world_size": world}
    return {
        "baseTimeNanoseconds": BASE_NS,
        "distributedInfo": info,
        "traceEvents": events,
    }


def _us(ns: int) -> float:
    return ns / 1000


def _rows(rank: Rank) -> list[Event]:
    rows, draw = [], random.Random(rank.rank)
    for row in rank.profile:
        noise = draw.randint(-rank.jitter_ns, rank.jitter_ns)
        start = rank.at_profile(row["timestamp"]) + noise
        end = rank.at_profile(row["timestamp"] + row["duration"]) + noise
        place = {"instance_id": rank.host, "process_id": str(rank.pid)}
        rows.append(row | place | {"timestamp": start, "duration": end - start})
    return rows


Keeps = Callable[[Ran], bool]


def among(ranks: list[Rank], keeps: Keeps) -> list[Ran]:
    """The executions of all ranks that ``keeps`` is true of, in order of rank and start."""
    ran = (one for rank in ranks for one in rank.ran if keeps(one))
    return sorted(ran, key=lambda one: (one.rank, one.start_ns, one.core))
