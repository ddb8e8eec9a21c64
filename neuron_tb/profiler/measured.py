"""Measured device time from Neuron Explorer's system profile of a window's capture."""

from __future__ import annotations

import os
import tempfile
import weakref
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from neuron_tb.profiler.explorer import make_profile
from neuron_tb.profiler.messages import say_once
from neuron_tb.profiler.paths import sessions_below
from neuron_tb.profiler.window import Window

EXPLORER = "neuron_explorer"
"""The ``activity_type`` of device rows that come from a system profile."""

_PROFILES = ("*system_profile*.json", "*system_profile*.json.gz", "*.parquet")


def executions(recording: Any, window: Window) -> list[dict[str, Any]]:
    """What the cores did in the window, as far as a system profile of the capture tells.

    Each has ``name``, ``core``, ``start_ns``, ``duration_ns`` and ``operator``: torch's id of the
    operator that launched it, or None. Empty without a system profile; where ``neuron-explorer``
    is on the PATH, it is run to make one. Never raises.
    """
    if not window.place.name:
        return []
    sessions = [
        session
        for session in sessions_below(window.place, os.getpid(), window.prepared_ns)
        if _has_profile(session) or make_profile(session, window.options.explorer_seconds)
    ]
    if not sessions:
        return []
    try:
        return _read(_saved_trace(recording, window), sessions)
    except Exception as error:
        reason = f"{type(error).__name__}: {error}"
        say_once("system profile", f"{sessions[0]} could not be read ({reason})", failure=True)
        return []


def _has_profile(session: Path) -> bool:
    return any(True for pattern in _PROFILES for _ in session.glob(pattern))


def _saved_trace(recording: Any, window: Window) -> Path:
    """The window's trace as a file. torch saves a trace once; later exports are copies of this."""
    if window.saved is not None and window.saved.exists():
        return window.saved
    handle, name = tempfile.mkstemp(prefix="neuron_tb-", suffix=".trace.json")
    os.close(handle)
    recording.export_chrome_trace(name)
    window.temporary = Path(name)
    weakref.finalize(window, Path(name).unlink, missing_ok=True)
    return window.temporary


def _read(trace_file: Path, sessions: Sequence[Path]) -> list[dict[str, Any]]:
    from neuron_tb.converters.load import load
    from neuron_tb.converters.model import NONE, Source

    trace = load(trace_file, *sessions)
    done = trace.executions
    rows = []
    for row in ((done.source == Source.MEASURED) & done.counted).nonzero()[0]:
        device = trace.devices[done.device[row]]
        if trace.processes[device.process].pid != os.getpid():
            continue
        operator = done.operator[row]
        external = NONE if operator == NONE else int(trace.slices.external_id[operator])
        rows.append(
            {
                "name": trace.strings[done.name[row]],
                "core": device.index,
                "start_ns": int(done.start_ns[row]),
                "duration_ns": int(done.duration_ns[row]),
                "operator": None if external == NONE else external,
            }
        )
    return rows
