"""Files that lie apart and belong together: by what they say, not by where they are.

A trace belongs to the Neuron directory that the manifest beside it names, or to the process
whose id its events have: traces are found beside their process' directory, and in another's.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path

from neuron_tb.converters.captures.capture import Capture, Found
from neuron_tb.converters.captures.heads import head_of
from neuron_tb.converters.captures.window_manifests import (
    KNOWN_VERSION,
    WindowManifest,
    manifest_of,
)

_PID = re.compile(rb'"pid"\s*:\s*"?(\d{1,10})\b')
_SMALLEST_PID = 64
"""Smaller numbers stand for devices in traces."""

CapturesIn = Callable[[Path], list[Capture]]


def gather(found: Found, captures_in: CapturesIn) -> None:
    """Put every framework trace into the capture that it belongs to.

    ``captures_in``: the captures in a directory.
    """
    for capture in list(found.captures):
        for path in list(capture.framework):
            manifest = manifest_of(path)
            if manifest is not None:
                _join_by_manifest(found, capture, path, manifest, captures_in)
    _put_right(found)
    found.captures = [c for c in found.captures if c.framework or c.system or c.raw or c.device]


def _join_by_manifest(
    found: Found,
    capture: Capture,
    path: Path,
    manifest: WindowManifest,
    captures_in: CapturesIn,
) -> None:
    if manifest.version > KNOWN_VERSION:
        found.findings.add(
            "newer_version",
            f"a manifest has version {manifest.version}, newer than {KNOWN_VERSION}; what is known "
            "of it was read",
            where=path.name,
        )
    home = capture
    for number, session in enumerate(manifest.sessions):
        own = _capture_of(found, session, captures_in)
        if own is None:
            continue
        own.named = True
        if number == 0 and own is not capture:
            found.findings.add(
                "trace_repeated",
                "traces in a Neuron directory were left out: the trace whose manifest names the "
                "directory is of the same window",
                len(own.framework),
                where=str(own.framework[0]) if own.framework else None,
            )
            capture.framework.remove(path)
            own.framework, home = [path], own
    home.manifests[path] = manifest


def _capture_of(found: Found, session: Path, captures_in: CapturesIn) -> Capture | None:
    resolved = session.resolve()
    for capture in found.captures:
        if capture.directory.resolve() == resolved:
            return capture
    made = [c for c in captures_in(session) if c.directory.resolve() == resolved]
    found.captures += made
    return made[0] if made else None


def _put_right(found: Found) -> None:
    """Move traces to the process whose id their events have."""
    by_pid: dict[int, list[Capture]] = defaultdict(list)
    for capture in found.captures:
        if capture.pid is not None and capture.pid >= _SMALLEST_PID:
            by_pid[capture.pid].append(capture)
    for capture in list(found.captures):
        for path in list(capture.framework):
            pid = _pid_in(path, by_pid) if path not in capture.manifests else None
            if pid is None or pid == capture.pid:
                continue
            target = _home(capture, by_pid[pid])
            if target is None:
                continue
            capture.framework.remove(path)
            target.framework.append(path)
            found.findings.add(
                "trace_elsewhere",
                "traces lie outside the directory of their process; they were joined with it by "
                "process id",
                where=f"{path}, of process {pid} in {target.directory}",
            )


def _pid_in(path: Path, known: dict[int, list[Capture]]) -> int | None:
    """The only process id of ``known`` that the trace's first events have."""
    if not known:
        return None
    mentioned = {int(text) for text in _PID.findall(head_of(path))} & known.keys()
    return mentioned.pop() if len(mentioned) == 1 else None


def _home(capture: Capture, candidates: list[Capture]) -> Capture | None:
    """The newest session of the process; None where several instances have such a process."""
    same_host = [c for c in candidates if c.host == capture.host]
    chosen = same_host or candidates
    if len({c.host for c in chosen}) != 1:
        return None
    return max(chosen, key=lambda c: (int(c.session) if c.session.isdigit() else 0, c.session))
