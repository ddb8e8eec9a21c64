"""Converting one unit of a capture, in whatever process that happens."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from importlib import import_module
from pathlib import Path
from typing import Any

from neuron_tb.converters.captures.capture import Found
from neuron_tb.converters.errors import NeuronTbError, NothingLeftError, WrongUseError
from neuron_tb.converters.findings import Finding, Findings
from neuron_tb.converters.joining import Identity
from neuron_tb.converters.load import load
from neuron_tb.converters.model import Trace
from neuron_tb.converters.placing.align import Align
from neuron_tb.converters.placing.host_clocks import Ends, collective_ends
from neuron_tb.converters.readers.json import bounds
from neuron_tb.converters.selection.apply import apply
from neuron_tb.converters.selection.filters import Filters
from neuron_tb.converters.writers import Destination, Writer, Written
from neuron_tb.converters.writers.freed_memory import give_back
from neuron_tb.converters.writers.targets import TARGETS


@dataclass(frozen=True, slots=True)
class Task:
    """One unit's conversion; everything in it can be sent to another process or machine.

    ``reading``: keywords of ``load``. ``rank``: the rank of a process whose files do not tell
    it. Without ``to`` the unit is only read, for its ``processes``.
    """

    found: Found
    out: Path
    run: str
    to: tuple[str, ...]
    instance_type: str | None = None
    reading: dict[str, Any] = field(default_factory=dict)
    rank: int | None = None
    filters: Filters = field(default_factory=Filters)
    max_size: int | None = None


@dataclass(slots=True)
class Result:
    """What came of a unit: its files, or the sentence why there are none (``error``).

    ``processes``: those with rows, the unit's own first. ``slices``: how many are kept of what
    was read. ``first_ns``: the earliest time. ``collectives``: when they ended, on the host's
    clock. ``empty``: filters leave nothing of the unit; ``wrong_use``: they cannot.
    """

    written: list[Written] = field(default_factory=list)
    findings: Findings = field(default_factory=Findings)
    processes: list[Identity] = field(default_factory=list)
    sources: list[str] = field(default_factory=list)
    slices: int = 0
    filtered: str = ""
    first_ns: int | None = None
    collectives: list[Ends] = field(default_factory=list)
    error: str | None = None
    empty: bool = False
    wrong_use: bool = False


def convert_unit(task: Task) -> Result:
    """Read a unit and write it; what fails is told in the result, and never raised."""
    try:
        with nullcontext() if task.max_size is None else bounds.allowed(task.max_size):
            return _convert(task)
    except NothingLeftError as error:
        return Result(error=str(error), empty=True, wrong_use=isinstance(error, WrongUseError))
    except NeuronTbError as error:
        return Result(error=str(error))
    except MemoryError:
        return Result(error="there was not enough memory.")
    except Exception as error:
        return Result(error=f"internal error ({type(error).__name__}: {error}).")


def _convert(task: Task) -> Result:
    # Hosts are compared where all of them are known.
    align = replace(Align.of(task.reading.get("align", "auto")), hosts=False)
    trace = load(task.found, **{**task.reading, "align": align})
    collectives = collective_ends(trace)
    if task.rank is not None:
        trace.processes[0] = replace(trace.processes[0], rank=task.rank)
    trace = apply(task.filters, trace)
    result = Result(
        findings=Findings(trace.findings),
        processes=[Identity(p.host, p.pid, p.rank) for p in trace.processes],
        sources=trace.sources,
        slices=len(trace.slices),
        filtered=trace.filtered,
        first_ns=trace.time_range()[0],
        collectives=collectives,
    )
    if task.to:
        destination = Destination(task.out, task.run, task.instance_type, force=True)
        result.written = write_all(trace, destination, task.to)
        result.findings.extend(findings_of(result.written))
    return result


def write_all(trace: Trace, destination: Destination, to: Sequence[str]) -> list[Written]:
    """Write a trace for every target. Raises NeuronTbError, also for what the system refuses."""
    written: list[Written] = []
    for target in to:
        write: Writer = import_module(TARGETS[target].writer).write
        give_back()
        try:
            written += write(trace, destination)
        except OSError as error:
            place = TARGETS[target].path(destination.out, destination.run)
            reason = error.strerror or error
            raise NeuronTbError(f"{place} cannot be written: {reason}.") from error
    return written


def findings_of(written: Sequence[Written]) -> list[Finding]:
    """The writers' findings; what several formats had to do alike is told once."""
    by_target: dict[str, Findings] = {}
    for file in written:
        by_target.setdefault(file.target, Findings()).extend(file.findings)
    told: dict[tuple[str, str], Finding] = {}
    for finding in (f for findings in by_target.values() for f in findings):
        old = told.get((finding.kind, finding.message))
        if old is None or old.count < finding.count:
            told[finding.kind, finding.message] = finding
    return list(told.values())
