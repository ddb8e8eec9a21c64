"""Switches the simulated Neuron on, and asks it what it did.

``install()`` registers the device "neuron" in this process (once; a process has one PrivateUse1
device); ``configure()`` changes its settings later. Nothing here measures a Neuron: lengths of
executions are settings.
"""

from __future__ import annotations

import os
import sys
import types
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from . import build
from .build import missing

__all__ = [
    "BIN",
    "STUB",
    "configure",
    "counters",
    "environment",
    "install",
    "install_from_environment",
    "missing",
    "settings",
    "truth",
    "use_torch_neuronx",
]

HERE = Path(__file__).resolve().parent
STUB = HERE / "stub"
"""Put it on sys.path or PYTHONPATH to have a ``torch_neuronx`` with NeuronConfig."""
BIN = HERE / "bin"
"""Put it on PATH to have a stand-in for ``neuron-explorer``."""

_DEFAULTS: dict[str, Any] = {
    "mode": "kernel",
    "cores": 2,
    "lnc": 1,
    "drop_unfinished": True,
    "annotations": True,
    "stubs": True,
    "kernel_us": 200.0,
    "copy_us": 20.0,
    "launch_us": 2.0,
    "notice_us": 3.0,
    "truth_limit": 50_000,
    "lengths_us": {},
    "instance": "i-simulated",
}


def install(*, kineto: bool = True, torch_neuronx: bool = False, **changes: Any) -> None:
    """Register the device "neuron" with these settings; a second call only changes settings.

    ``mode``: what the Kineto plugin emits for executions: "kernel" (exact busy time), "driver"
    (windows from queueing to completion) or "none" (no event of the device or the runtime).
    ``cores``: logical NeuronCores. ``lnc``: physical cores of each (in the runtime's capture).
    ``drop_unfinished``: work that has not finished when the profiler stops is lost; otherwise
    the plugin waits for it. ``annotations``: the user's ranges are shown on the device too.
    ``stubs``: whether profiling without Kineto works.
    ``kernel_us``, ``copy_us``: length of executions and copies; ``lengths_us`` gives others by
    operator ("aten::mul", "Memcpy HtoD"). ``launch_us``: length of the call that queues one.
    ``notice_us``: from completion to the end of a window. ``truth_limit``: rows that
    ``truth`` keeps. ``instance``: the instance id in directory names.
    ``kineto``: False registers no Kineto plugin at all. ``torch_neuronx``: True makes the stub
    package ``torch_neuronx`` importable.

    Raises RuntimeError where the simulator cannot be built, TypeError for an unknown setting.
    """
    import torch

    extension = build.load()
    installed = getattr(getattr(torch, "neuron", None), "simulated", False)
    if installed:
        configure(**changes)
    else:
        _settings().update(_DEFAULTS)
        configure(**changes)
        extension.install(kineto)
        torch.utils.rename_privateuse1_backend("neuron")
        torch._register_device_module("neuron", _device_module(torch, extension))
        torch.utils.generate_methods_for_privateuse1_backend(
            for_tensor=True, for_module=True, for_storage=True
        )
        _list_device(torch)
    if torch_neuronx:
        use_torch_neuronx()


def configure(**changes: Any) -> None:
    """Change settings of ``install``; sessions and launches from now on follow them."""
    unknown = set(changes) - set(_DEFAULTS)
    if unknown:
        raise TypeError(f"the simulated Neuron has no setting {', '.join(sorted(unknown))}")
    current = {**_DEFAULTS, **_settings(), **changes}
    given = dict(current)
    given["most_works"] = given.pop("truth_limit")
    given["lengths_us"] = dict(given["lengths_us"])
    build.load().configure(**given)
    _settings().update(current)


def settings() -> Mapping[str, Any]:
    """The present settings."""
    return {**_DEFAULTS, **_settings()}


def truth(session: int | None = None, *, kind: str | None = None) -> list[dict[str, Any]]:
    """What the simulated cores did, in order of launch: one dict per execution or copy.

    Keys: ``operator``, ``kernel``, ``kind`` ("kernel", "HtoD", "DtoH", "DtoD"), ``status``
    ("outside" any profiler session, "recorded", "unfinished" when its session stopped, or still
    "recording"), ``session``, ``core``, ``stream``, ``thread``, ``call_start_ns``,
    ``call_end_ns`` (the host's runtime call), ``start_ns``, ``end_ns``, ``duration_ns`` (the
    core), ``bytes``, ``correlation``, ``sequence_id``, ``exec_id``. Times are epoch nanoseconds.
    ``session``: only rows of the profiler session of this number, from 1; 0: of none.
    """
    rows: list[dict[str, Any]] = build.load().truth()
    return [
        row
        for row in rows
        if (session is None or row["session"] == session) and (kind is None or row["kind"] == kind)
    ]


def counters() -> dict[str, Any]:
    """Counts since the process started, and the last request as the plugin saw it.

    ``syncs`` (per core), ``launches``, ``starts``, ``stops`` (sessions), ``refused`` (profiles
    that asked for no device), ``unfinished`` (lost at stop), ``truth_forgotten``,
    ``last_types`` (activity types), ``last_config`` (the custom configuration as Kineto passed
    it on), ``last_directory`` (the runtime's capture, "" before the first).
    """
    return dict(build.load().counters())


def use_torch_neuronx() -> None:
    """Make the stub package ``torch_neuronx`` importable in this process."""
    if str(STUB) not in sys.path:
        sys.path.insert(0, str(STUB))


def environment(
    *, torch_neuronx: bool = True, explorer: bool = True, **changes: Any
) -> dict[str, str]:
    """Environment variables for a child process in which ``import torch`` brings the device.

    Settings are those of ``install``. With ``torch_neuronx`` the stub
    package is importable and loaded by torch itself, as TorchNeuron is; with ``explorer`` the
    stand-in for ``neuron-explorer`` is on the PATH.
    """
    if isinstance(changes.get("lengths_us"), Mapping):
        lengths = changes["lengths_us"]
        changes["lengths_us"] = "+".join(f"{name}:{us}" for name, us in lengths.items())
    variables = {"NEURON_SIM": ",".join(f"{key}={value}" for key, value in changes.items())}
    if torch_neuronx:
        old = os.environ.get("PYTHONPATH")
        variables["PYTHONPATH"] = os.pathsep.join([str(STUB), *([old] if old else [])])
    if explorer:
        variables["PATH"] = os.pathsep.join([str(BIN), os.environ.get("PATH", "")])
    return variables


def install_from_environment() -> None:
    """``install`` with the settings in ``NEURON_SIM`` ("mode=driver,cores=4,…")."""
    changes: dict[str, Any] = {}
    for part in filter(None, os.environ.get("NEURON_SIM", "").split(",")):
        key, _, text = part.partition("=")
        default = _DEFAULTS.get(key, "")
        if isinstance(default, bool):
            changes[key] = text.lower() in ("1", "true", "yes")
        elif isinstance(default, int | float):
            changes[key] = type(default)(text)
        elif key == "lengths_us":
            pairs = (pair.rpartition(":") for pair in text.split("+"))
            changes[key] = {name: float(us) for name, _, us in pairs}
        else:
            changes[key] = text
    install(**changes)


def _list_device(torch: Any) -> None:
    """CUDA builds of torch 2.9 can record the device and do not list it; their CPU builds do."""
    device = torch.profiler.ProfilerActivity.PrivateUse1
    listed = torch.autograd._supported_activities
    if device not in listed():
        for module in (torch.autograd, torch.autograd.profiler):
            module._supported_activities = lambda: {*listed(), device}


def _settings() -> dict[str, Any]:
    """Kept with the extension, because this module can be imported under two names."""
    extension = build.load()
    if not hasattr(extension, "settings"):
        extension.settings = {}
    found: dict[str, Any] = extension.settings
    return found


def _device_module(torch: Any, extension: Any) -> types.ModuleType:
    """The module ``torch.neuron``: what torch itself needs, and what users call."""
    module: Any = types.ModuleType("torch.neuron", "A simulated Neuron, not AWS's torch.neuron.")

    def index(device: Any = None) -> int:
        if device is None:
            return int(extension.current_device())
        if isinstance(device, int):
            return device
        found = torch.device(device).index
        return int(extension.current_device()) if found is None else int(found)

    class Device:
        """Context in which a core is the current one."""

        def __init__(self, device: Any) -> None:
            self.core = index(device)

        def __enter__(self) -> None:
            self.before = extension.current_device()
            extension.set_device(self.core)

        def __exit__(self, *error: object) -> None:
            extension.set_device(self.before)

    class Stream(torch.Stream):
        def __new__(cls, device: Any = None, priority: int = 0) -> Any:
            return torch.Stream(device=torch.device("neuron", index(device)), priority=priority)

    def event(enable_timing: bool = False, blocking: bool = False) -> Any:
        return torch.Event(device="neuron", enable_timing=enable_timing, blocking=blocking)

    class UseStream:
        def __init__(self, stream: Any) -> None:
            self.stream = stream

        def __enter__(self) -> None:
            if self.stream is not None:
                self.before = torch.accelerator.current_stream(self.stream.device.index)
                torch.accelerator.set_stream(self.stream)

        def __exit__(self, *error: object) -> None:
            if self.stream is not None:
                torch.accelerator.set_stream(self.before)

    def memory(key: str) -> Any:
        return lambda device=None: extension.memory(index(device))[key]

    members: dict[str, Any] = {
        "simulated": True,
        "is_available": lambda: True,
        "is_initialized": lambda: True,
        "init": lambda: None,
        "_lazy_init": lambda: None,
        "_is_in_bad_fork": lambda: False,
        "device_count": extension.device_count,
        "current_device": extension.current_device,
        "set_device": lambda device: extension.set_device(index(device)),
        "synchronize": lambda device=None: extension.synchronize(index(device)),
        "device": Device,
        "Stream": Stream,
        "Event": event,
        "stream": UseStream,
        "current_stream": lambda device=None: torch.accelerator.current_stream(index(device)),
        "set_stream": torch.accelerator.set_stream,
        "get_device_name": lambda device=None: "NeuronCore (simulated)",
        "get_amp_supported_dtype": lambda: [torch.bfloat16, torch.float16],
        "is_bf16_supported": lambda: True,
        "manual_seed": lambda seed: None,
        "manual_seed_all": lambda seed: None,
        "get_rng_state": lambda device=None: torch.empty(0, dtype=torch.uint8),
        "set_rng_state": lambda state, device=None: None,
        "empty_cache": lambda: None,
        "memory_allocated": memory("allocated"),
        "max_memory_allocated": memory("peak"),
        "memory_reserved": memory("reserved"),
        "reset_peak_memory_stats": lambda device=None: extension.reset_peak(index(device)),
    }
    for name, member in members.items():
        setattr(module, name, member)
    return module
