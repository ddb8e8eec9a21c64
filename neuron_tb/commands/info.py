"""``neuron-tb info``: what a capture holds and what it lacks."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click
import numpy as np

from neuron_tb.analysis.absence import why_no_device_time
from neuron_tb.commands.common import (
    SOURCE,
    Stages,
    align_option,
    command_options,
    format_option,
    print_findings,
    print_json,
    print_table,
)
from neuron_tb.commands.filtering import filter_options, print_filtered
from neuron_tb.converters.captures.capture import Found
from neuron_tb.converters.captures.find import find
from neuron_tb.converters.captures.window_manifests import WindowManifest
from neuron_tb.converters.errors import NeuronTbError
from neuron_tb.converters.findings import Findings
from neuron_tb.converters.load import load
from neuron_tb.converters.model import Alignment, LinkKind, Role, Source, Trace
from neuron_tb.converters.placing.device_profiles import profiles_of
from neuron_tb.converters.selection.filters import Filters

_LISTED = 12
"""Files of a kind that the table names; JSON has all."""


@click.command("info")
@click.argument("sources", nargs=-1, required=True, type=SOURCE)
@align_option
@format_option
@command_options
@filter_options
def command(
    sources: tuple[Path, ...], align: tuple[str, ...], output_format: str, filters: Filters
) -> Findings:
    """Say what a capture holds and what it lacks, and what would bring it."""
    found = find(sources, listing=True)
    try:
        with Stages() as stages:
            searched = (found,) if found.captures else sources
            trace = load(*searched, filters=filters, align=align, progress=stages)
    except NeuronTbError as error:
        _print_unreadable(found, error, output_format)
        raise
    facts = _facts(trace)
    if output_format == "json":
        facts["filtered"] = trace.filtered or None
        print_json({**_capture_facts(found), **facts, "findings": trace.findings.as_dicts()})
    else:
        _print(found, trace, facts)
        print_filtered(trace.filtered)
        print_findings(trace.findings)
    return trace.findings


def _capture_facts(found: Found) -> dict[str, Any]:
    return {
        "name": found.name,
        "captures": [
            {
                "directory": str(capture.directory),
                "host": capture.host or None,
                "pid": capture.pid,
                "session": capture.session or None,
                "framework": [str(p) for p in capture.framework],
                "system_profile": [str(p) for p in capture.system],
                "device_profile": [str(p) for p in capture.device],
                "windows": [
                    {"file": str(path), "rank": manifest.rank, "steps": list(manifest.steps)}
                    for path, manifest in capture.manifests.items()
                ],
                "not_opened": [str(p) for p in capture.not_opened()],
                "lacks": capture.lacks(),
            }
            for capture in (*found.captures, *found.only_listed)
        ],
    }


def _print_unreadable(found: Found, error: NeuronTbError, output_format: str) -> None:
    """What there is, where none of it could be read; the error says why."""
    if output_format == "json":
        print_json({**_capture_facts(found), "error": str(error)})
    else:
        _print_captures(found)


def _facts(trace: Trace) -> dict[str, Any]:
    first, last = trace.time_range()
    work = trace.executions
    counted = work.take(work.counted)
    roles = Counter(Role(role).name.lower() for role in trace.slices.role.tolist())
    return {
        "clock": trace.clock.kind.value,
        "duration_us": (last - first) / 1000,
        "clocks": [asdict(alignment) for alignment in trace.alignments],
        "processes": [
            {"host": p.host or None, "pid": p.pid, "rank": p.rank, "name": p.name or None}
            for p in trace.processes
        ],
        "devices": [
            {"process": d.process, "index": d.index, "family": d.family, "name": d.name}
            for d in trace.devices
        ],
        "slices": dict(roles.most_common()),
        "instants": len(trace.instants),
        "counter_samples": len(trace.counters),
        "memory_events": len(trace.memory),
        "flows": len(trace.flows),
        "steps": list(dict.fromkeys(trace.steps.label(s) for s in range(len(trace.steps)))),
        "device_profiles": [
            {key: facts.get(key) for key in ("name", "core", "placed", "offset_ns", "bound_ns")}
            for facts in profiles_of(trace)
        ],
        "executions": {
            "measured": int(np.count_nonzero(counted.source == Source.MEASURED)),
            "window": int(np.count_nonzero(counted.source == Source.WINDOW)),
            "windows_replaced": len(work) - len(counted),
        },
        "links": {
            "launch": _kinds(counted.launch_link.tolist()),
            "operator": _kinds(counted.operator_link.tolist()),
        },
        "note": why_no_device_time(trace),
    }


def _kinds(kinds: list[int]) -> dict[str, int]:
    return {LinkKind(kind).name.lower(): n for kind, n in Counter(kinds).most_common()}


def _print_captures(found: Found) -> None:
    click.echo(click.style(found.name, bold=True))
    for capture in (*found.captures, *found.only_listed):
        click.echo(f"  {capture.directory}")
        for title, paths in (
            ("framework trace", capture.framework),
            ("system profile", capture.system),
            ("device profile", capture.device),
            ("not opened", capture.not_opened()),
        ):
            if paths:
                click.echo(f"    {title}: {_names(paths)}")
        for path, manifest in capture.manifests.items():
            click.echo(f"    window: {path.name}, {_window(manifest)}")
        for sentence in capture.lacks():
            click.echo(f"    lacks: {sentence}")


def _print(found: Found, trace: Trace, facts: dict[str, Any]) -> None:
    _print_captures(found)
    processes = ", ".join(
        f"rank {p.rank} (pid {p.pid})" if p.rank is not None else f"pid {p.pid}"
        for p in trace.processes
    )
    executions = facts["executions"]
    rows = [
        ("Processes", processes),
        ("Devices", ", ".join(dict.fromkeys(d.name for d in trace.devices)) or "-"),
        ("Time line", f"{facts['duration_us']:,.1f} us, {facts['clock']} clock"),
        *(("Clocks", _alignment(one)) for one in trace.alignments[:_LISTED]),
        ("Slices", ", ".join(f"{n:,} {role}" for role, n in facts["slices"].items())),
        ("Instants", f"{facts['instants']:,}"),
        ("Counter samples", f"{facts['counter_samples']:,}"),
        ("Memory events", f"{facts['memory_events']:,}"),
        ("Steps", f"{len(facts['steps'])} ({', '.join(facts['steps'][:20])})"),
        (
            "Executions",
            f"{executions['measured']:,} measured, {executions['window']:,} windows "
            f"({executions['windows_replaced']:,} more windows replaced by measurements)",
        ),
        ("Calls found by", _sentence(facts["links"]["launch"])),
        ("Operators found by", _sentence(facts["links"]["operator"])),
    ]
    print_table(None, [("", "left"), ("", "left")], rows)
    if facts["note"]:
        click.echo(facts["note"])


def _alignment(one: Alignment) -> str:
    if one.offset_ns is None or one.bound_ns is None:
        return f"{one.clock}: off by an unknown amount"
    evidence = f"{one.anchors:,} {one.method}"
    if one.moved:
        bound = f" (within {one.bound_ns / 1000:,.3f} us, {evidence})" if one.anchors else ""
        return f"{one.clock}: moved by {one.offset_ns / 1000:+,.3f} us{bound}"
    if abs(one.offset_ns) <= one.bound_ns:
        return f"{one.clock}: agrees with the trace's ({evidence})"
    return f"{one.clock}: off by {-one.offset_ns / 1000:+,.3f} us, not moved ({evidence})"


def _window(manifest: WindowManifest) -> str:
    first, last = manifest.steps
    rank = "" if manifest.rank is None else f"rank {manifest.rank}, "
    return rank + ("steps not known" if first is None else f"steps {first} to {last}")


def _names(paths: list[Path]) -> str:
    more = len(paths) - _LISTED
    return ", ".join(p.name for p in paths[:_LISTED]) + (f" and {more:,} more" if more > 0 else "")


def _sentence(kinds: dict[str, int]) -> str:
    return ", ".join(f"{kind.replace('_', ' ')} {n:,}" for kind, n in kinds.items()) or "-"
