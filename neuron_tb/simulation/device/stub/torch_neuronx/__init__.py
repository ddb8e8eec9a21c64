"""A stand-in for AWS's torch_neuronx: it registers the simulated Neuron. Not AWS's package.

Importing it makes the device "neuron" with the settings in ``NEURON_SIM``, unless the process
has one already. torch loads it by itself, through the ``torch.backends`` entry point beside it.
"""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Any

import torch

__version__ = "0.0+simulated"


def _simulator() -> Any:
    for name in ("neuron_tb.simulation.device", "neuron_sim"):
        if name in sys.modules:
            return importlib.import_module(f"{name}.sim")
    here = Path(__file__).resolve().parents[2]
    spec = importlib.util.spec_from_file_location(
        "neuron_sim", here / "__init__.py", submodule_search_locations=[str(here)]
    )
    assert spec is not None
    assert spec.loader is not None
    package = importlib.util.module_from_spec(spec)
    sys.modules["neuron_sim"] = package
    spec.loader.exec_module(package)
    return importlib.import_module("neuron_sim.sim")


if not getattr(getattr(torch, "neuron", None), "simulated", False):
    _simulator().install_from_environment()


def _autoload() -> None:
    """Called at the end of ``import torch``; importing this module has done the work."""


def synchronize(device: Any = None) -> None:
    """Wait for the work of one core, the current one by default."""
    torch.neuron.synchronize(device)


def is_available() -> bool:
    """Whether there is a core."""
    return bool(torch.neuron.is_available())


def device_count() -> int:
    """How many logical cores there are."""
    return int(torch.neuron.device_count())


Stream = torch.neuron.Stream
Event = torch.neuron.Event
stream = torch.neuron.stream
