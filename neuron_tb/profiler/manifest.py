"""A small file beside each trace that says what belongs to it."""

from __future__ import annotations

import json
import os
import platform
import socket
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

import neuron_tb
from neuron_tb.profiler.experimental import custom_text
from neuron_tb.profiler.messages import say_once
from neuron_tb.profiler.paths import sessions_below
from neuron_tb.profiler.window import Window

SUFFIX = ".neuron.json"
"""Added to the trace's name without .json and .gz."""


def beside(trace: Path) -> Path:
    """The manifest's path for a trace."""
    name = trace.name.removesuffix(".gz").removesuffix(".json")
    return trace.with_name(name + SUFFIX)


def write(trace: Path, profile: Any, window: Window) -> None:
    """Write the manifest of ``trace``; a failure is said and does not stop the training."""
    try:
        text = json.dumps(_content(trace, profile, window), indent=2) + "\n"
        beside(trace).write_text(text, encoding="utf-8")
    except OSError as error:
        say_once("manifest", f"no manifest beside {trace}: {error}", failure=True)


def _content(trace: Path, profile: Any, window: Window) -> dict[str, Any]:
    pid = os.getpid()
    place = window.place if window.place.name else None
    sessions = sessions_below(place, pid, window.prepared_ns) if place else []
    return {
        "manifest": "neuron_tb profile",
        "version": 1,
        "file": trace.name,
        "neuron_directory": str(place) if place else None,
        "neuron_sessions": [str(session) for session in sessions],
        "host": socket.gethostname(),
        "pid": pid,
        "rank": _number("RANK"),
        "local_rank": _number("LOCAL_RANK"),
        "world_size": _number("WORLD_SIZE"),
        "steps": [window.first_step, window.last_step],
        "configuration": custom_text(profile.experimental_config),
        "versions": _versions(),
    }


def _number(variable: str) -> int | None:
    text = os.environ.get(variable, "")
    return int(text) if text.isdigit() else None


def _versions() -> dict[str, str | None]:
    import torch

    versions: dict[str, str | None] = {
        "neuron_tb": neuron_tb.__version__,
        "python": platform.python_version(),
        "torch": str(torch.__version__),
    }
    if "torch_neuronx" in sys.modules:
        try:
            versions["torch_neuronx"] = metadata.version("torch-neuronx")
        except metadata.PackageNotFoundError:
            versions["torch_neuronx"] = None
    return versions
