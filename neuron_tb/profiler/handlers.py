"""Trace handlers: torch's for TensorBoard with ranks in its names, more formats, and Perfetto."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from neuron_tb.profiler import conversion
from neuron_tb.profiler.paths import worker_name as own_worker_name

Handler = Callable[[Any], None]


def tensorboard_trace_handler(
    dir_name: str | os.PathLike[str],
    worker_name: str | None = None,
    use_gzip: bool = False,
    use_python_export: bool = False,
    *,
    formats: Sequence[str] = (),
) -> Handler:
    """As torch's: each window becomes ``DIR/WORKER.TIME.pt.trace.json``, TIME in ns.

    ``worker_name`` is by default host, process id and, in a distributed run, the rank.
    ``formats``: any of ``torch-tb``, ``xprof``, ``perfetto``; after each window a process of its
    own converts it, and ``tensorboard --logdir DIR`` shows the results. With ``torch-tb`` the
    trace as recorded goes to ``DIR/recorded/``, so that the plugin shows each window once.
    Raises ValueError for an unknown format.
    """
    wanted = conversion.checked(formats)
    # The name by which torch's handler keeps it, where the profile looks for it.
    dir_name = Path(dir_name)

    def handler_fn(profile: Any) -> None:
        worker = worker_name or own_worker_name()
        suffix = ".gz" if use_gzip else ""
        stamp = time.time_ns()
        place = dir_name / f"{worker}.{stamp}.pt.trace.json{suffix}"
        if "torch-tb" in wanted:
            place = dir_name / "recorded" / f"{worker}.{stamp}.trace.json{suffix}"
        _export(profile, place, use_python_export)
        conversion.start(profile, place, dir_name, wanted)

    return handler_fn


def perfetto_trace_handler(
    dir_name: str | os.PathLike[str], worker_name: str | None = None
) -> Handler:
    """Each window becomes ``DIR/recorded/WORKER.TIME.trace.json`` and a ``.pftrace`` of it."""
    # The name by which torch's handler keeps it, where the profile looks for it.
    dir_name = Path(dir_name)

    def handler_fn(profile: Any) -> None:
        worker = worker_name or own_worker_name()
        place = dir_name / "recorded" / f"{worker}.{time.time_ns()}.trace.json"
        _export(profile, place, use_python_export=False)
        conversion.start(profile, place, dir_name, ("perfetto",))

    return handler_fn


def _export(profile: Any, place: Path, use_python_export: bool) -> None:
    place.parent.mkdir(parents=True, exist_ok=True)
    more = {"use_python_export": True} if use_python_export else {}
    profile.export_chrome_trace(str(place), **more)
