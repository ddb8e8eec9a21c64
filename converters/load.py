"""From sources to one Trace: find, read, put together, link."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from neuron_tb.converters.captures.capture import Capture, Found
from neuron_tb.converters.captures.find import find
from neuron_tb.converters.captures.neffs import report_absent
from neuron_tb.converters.captures.raw import give_profiles
from neuron_tb.converters.captures.remote import local_source
from neuron_tb.converters.errors import NeuronTbError
from neuron_tb.converters.findings import Findings
from neuron_tb.converters.links import link
from neuron_tb.converters.links.overlaps import report_overlapping_work
from neuron_tb.converters.model import Trace
from neuron_tb.converters.placing.align import Align
from neuron_tb.converters.placing.device_profiles import (
    add_device_profiles,
    profiles_of,
    read_profiles,
)
from neuron_tb.converters.placing.framework_mapping import add_mappings
from neuron_tb.converters.placing.together import put_together
from neuron_tb.converters.readers import KINETO, Format, read_device_facts, read_source
from neuron_tb.converters.selection.apply import apply
from neuron_tb.converters.selection.filters import Filters
from neuron_tb.converters.selection.ranks import only_ranks

Progress = Callable[[str], None]
"""Called with a short text before each stage of long work."""


def load(
    *sources: str | Path | Found,
    steps_from: str | None = None,
    instructions: bool = False,
    filters: Filters | None = None,
    align: str | Sequence[str] | Align = "auto",
    progress: Progress | None = None,
) -> Trace:
    """Read captures into one Trace.

    A source is a trace file, a capture directory ``<instance>_pid_<pid>/<timestamp>/``, or a
    directory that holds any number of them; all sources of one call make one run. It may be a
    URL (``neuron_tb.converters.captures.remote``).
    ``steps_from`` names the annotation that marks steps (default ``ProfilerStep#N``).
    ``instructions``: single instructions, DMA packets and semaphores of device profiles too.

    ``align``: what is done where the clocks of two files differ: ``auto``, ``none``, or
    ``offset=NAME:NANOSECONDS`` (docs/clocks.md).

    ``filters``: the part of the capture to keep (``neuron_tb.converters.selection.filters``).

    Raises NeuronTbError, with one plain sentence, when nothing can be read.
    """
    say = progress or (lambda text: None)
    how = align if isinstance(align, Align) else Align.of(align)
    found = find_all(sources)
    if filters is not None:
        found = only_ranks(found, filters)
    raw_findings = give_profiles(found, say)
    profiles, failures = read_profiles(found, instructions, say)
    framework, system = _read_all(found, say, failures, needed=not profiles)
    trace = add_device_profiles(put_together(found.name, framework, system, how), profiles)
    for sentence in failures:
        trace.findings.add("file_unreadable", sentence)
    if steps_from:
        trace.step_annotation = steps_from
    trace.findings.extend(raw_findings)
    add_mappings(trace, found)
    _report_capture(found, trace)
    say("linking operators and device work")
    link(trace)
    trace.findings.extend(trace.links.findings)
    report_overlapping_work(trace)
    return apply(filters, trace) if filters is not None else trace


def device_facts(source: str | Path | Trace, findings: Findings) -> list[dict[str, Any]]:
    """What every device profile of a source says of itself, without its rows.

    The keys are those of ``device.facts.facts_of``; a profile that cannot be read is a
    finding. Raises NeuronTbError when none can.
    """
    if isinstance(source, Trace):
        return profiles_of(source)
    found: list[dict[str, Any]] = []
    failures: list[str] = []
    for capture in find([local_source(source)]).captures:
        for path in capture.device:
            try:
                found.append(read_device_facts(path, capture.context(path)))
            except NeuronTbError as error:
                failures.append(str(error))
    if failures and not found:
        raise NeuronTbError(failures[0])
    for sentence in failures:
        findings.add("file_unreadable", sentence)
    return found


def find_all(sources: Sequence[str | Path | Found]) -> Found:
    """What the sources hold; a single one may be the result of an earlier search."""
    if len(sources) == 1 and isinstance(sources[0], Found):
        return sources[0]
    return find([local_source(source) for source in sources if not isinstance(source, Found)])


def _read_all(
    found: Found, say: Progress, failures: list[str], needed: bool
) -> tuple[list[Trace], list[tuple[Trace, bool]]]:
    framework: list[Trace] = []
    system: dict[Path, tuple[Trace, bool]] = {}
    for capture in found.captures:
        for path in (*capture.framework, *capture.system):
            resolved = path.resolve()
            if resolved in system:
                continue
            say(f"reading {path.name}")
            try:
                trace, kind = _read(path, capture)
            except NeuronTbError as error:
                failures.append(str(error))
                capture.system = [p for p in capture.system if p != path]
                continue
            if kind.system:
                explicit = not capture.framework or len(found.captures) > 1
                system[resolved] = (trace, explicit)
            else:
                framework.append(trace)
    if needed and not framework and not system:
        lacking = [s for c in found.captures for s in c.lacks()]
        raise NeuronTbError(
            failures[0] if failures else f"{found.captures[0].directory} has {lacking[0]}."
        )
    return framework, list(system.values())


def _read(path: Path, capture: Capture) -> tuple[Trace, Format]:
    trace, kind = read_source(path, capture.context(path))
    empty = not (len(trace.slices) or len(trace.instants) or len(trace.counters))
    only_marks = not (len(trace.slices) or len(trace.counters) or len(trace.memory))
    if kind is KINETO and (empty or only_marks):
        raise NeuronTbError(
            f"{path} holds no event with a duration: the profiler's schedule probably never "
            "reached an active step, or profiler.step() was not called."
        )
    if kind.system and empty:
        raise NeuronTbError(f"{path} holds no row that could be read.")
    return trace, kind


def _report_capture(found: Found, trace: Trace) -> None:
    trace.findings.add(
        "own_result",
        "files that neuron-tb convert wrote were left out: they repeat the capture",
        len(found.own_results),
        where=str(found.own_results[0]) if found.own_results else None,
    )
    trace.findings.add(
        "folder_unreadable",
        "folders that may not be read were left out",
        len(found.unreadable),
        where=found.unreadable[0] if found.unreadable else None,
    )
    trace.findings.extend(found.findings)
    report_absent(trace, (p for c in found.captures for p in c.listed))
    for capture in found.older:
        trace.findings.add(
            "older_session",
            "older sessions of a process were left out; give their directory to read one",
            where=str(capture.directory),
        )
    for capture in found.captures:
        if capture.raw and not capture.system:
            for sentence in capture.lacks():
                trace.findings.add("capture_incomplete", f"{capture.directory} has {sentence}")
