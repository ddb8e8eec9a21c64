"""Converting a window after it, in a process of its own, so that training goes on."""

from __future__ import annotations

import atexit
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from neuron_tb.converters.captures.explorer import SWITCH as EXPLORER_SWITCH
from neuron_tb.profiler import window as windows
from neuron_tb.profiler.messages import say, say_once
from neuron_tb.profiler.paths import sessions_below

FORMATS = ("torch-tb", "xprof", "perfetto")
_LONGEST_WAIT_SECONDS = 300.0
_STARTED = time.strftime("%Y_%m_%d_%H_%M_%S")
_NO_RUN_ID = ("", "none")


@dataclass
class _Running:
    process: subprocess.Popen[bytes]
    errors: IO[bytes]
    trace: Path


_running: list[_Running] = []


def checked(formats: Sequence[str]) -> tuple[str, ...]:
    """``formats`` without repetition. Raises ValueError for one that does not exist."""
    wanted = (formats,) if isinstance(formats, str) else tuple(dict.fromkeys(formats))
    for name in wanted:
        if name not in FORMATS:
            raise ValueError(f"there is no format {name!r}; known are {', '.join(FORMATS)}")
    return wanted


def start(profile: Any, trace: Path, out: Path, formats: Sequence[str]) -> None:
    """Begin to convert ``trace`` into ``out``. Nothing that fails here stops the training."""
    _report_finished()
    if not formats:
        return
    task = {
        "sources": [str(path) for path in _sources(profile, trace)],
        "out": str(out),
        "formats": list(formats),
        "run": run_name(profile, trace),
        "rank": _rank(),
        "host": socket.gethostname(),
    }
    environment = {k: v for k, v in os.environ.items() if k != "NEURON_TB"}
    window = windows.of(profile)
    if window is not None:
        environment.setdefault(EXPLORER_SWITCH, str(window.options.explorer_seconds))
    errors = tempfile.TemporaryFile()  # noqa: SIM115
    command = [sys.executable, "-m", "neuron_tb.profiler.convert_window", json.dumps(task)]
    try:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=errors,
            env=environment,
        )
    except OSError as error:
        say_once("conversion", f"{trace} could not be converted: {error}", failure=True)
        return
    if not _running:
        atexit.register(wait_for_all)
    _running.append(_Running(process, errors, trace))


def wait_for_all(seconds: float = _LONGEST_WAIT_SECONDS) -> None:
    """Wait until all windows are converted, ``seconds`` at most; name those that are not."""
    end = time.monotonic() + seconds
    for running in _running:
        try:
            running.process.wait(max(0.0, end - time.monotonic()))
        except subprocess.TimeoutExpired:
            say(f"{running.trace} is still being converted (process {running.process.pid})")
    _report_finished()


def run_name(profile: Any, trace: Path) -> str:
    """A name that all ranks of a run agree on, with the window's steps.

    ``NEURON_TB_RUN``, else torchrun's run id, else the time when this process began.
    """
    shared = os.environ.get("NEURON_TB_RUN") or os.environ.get("TORCHELASTIC_RUN_ID", "")
    name = _STARTED if shared in _NO_RUN_ID else shared
    window = windows.of(profile)
    if window is None or window.first_step is None or window.last_step is None:
        return f"{name}.{trace.name.split('.')[-3] if trace.name.count('.') > 2 else trace.stem}"
    return f"{name}_steps{window.first_step}-{window.last_step}"


def _sources(profile: Any, trace: Path) -> list[Path]:
    """The trace, and the Neuron Runtime's directories of the same window."""
    window = windows.of(profile)
    if window is None or not window.place.name:
        return [trace]
    sessions = sessions_below(window.place, os.getpid(), window.prepared_ns)
    return [trace, *(session for session in sessions if any(session.glob("*.json")))]


def _rank() -> int | None:
    text = os.environ.get("RANK", "")
    return int(text) if text.isdigit() else None


def _report_finished() -> None:
    for running in list(_running):
        code = running.process.poll()
        if code is None:
            continue
        _running.remove(running)
        running.errors.seek(0)
        lines = running.errors.read().decode(errors="replace").strip().splitlines()
        running.errors.close()
        if code:
            reason = lines[-1] if lines else f"exit code {code}"
            say(f"{running.trace} was recorded, but not converted: {reason}")
