"""A stand-in for ``torch_neuronx.profiling``, with the names that AWS documents.

The text of the configuration ("key:value;key:value") is the simulator's own; it reads back
``profile_output_dir``, ``capture_enabled_for_nc``, ``max_events_per_nc`` and the modes.
``NEURON_SIM_CORRELATE=0`` in the environment gives a NeuronConfig of the older kind, without
``correlate_device_time``, which has no effect on the simulator anyway.
"""

from __future__ import annotations

import enum
import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch._C._profiler import _ExperimentalConfig


class ProfileMode(enum.Enum):
    """What a capture holds."""

    DEVICE = "device"
    RUNTIME = "runtime"
    CPU_UTIL = "cpu_util"
    HOST_MEMORY = "host_memory"


class _BaseConfig(_ExperimentalConfig):
    def _set(self, values: dict[str, Any]) -> None:
        self.profile_output_dir = values.pop("profile_output_dir")
        self.modes = list(values.pop("modes") or [ProfileMode.DEVICE, ProfileMode.RUNTIME])
        text = {mode.value: str(mode in self.modes).lower() for mode in ProfileMode}
        text["profile_output_dir"] = str(self.profile_output_dir)
        for key, value in values.items():
            setattr(self, key, value)
            if value is not None:
                text[key] = str(value).lower() if isinstance(value, bool) else str(value)
        # Before torch 2.12 only the constructor takes it.
        super().__init__(
            custom_profiler_config=";".join(f"{key}:{value}" for key, value in text.items())
        )


class _OldConfig(_BaseConfig):
    def __init__(
        self,
        modes: Sequence[ProfileMode] | None = None,
        max_events_per_nc: int = 1_000_000,
        capture_enabled_for_nc: str | None = None,
        profile_output_dir: str = "./output",
        neff_cache_dir: str | None = None,
        precache_node_info: bool = True,
    ) -> None:
        self._set(
            {
                "modes": modes,
                "max_events_per_nc": max_events_per_nc,
                "capture_enabled_for_nc": capture_enabled_for_nc,
                "profile_output_dir": profile_output_dir,
                "neff_cache_dir": neff_cache_dir,
                "precache_node_info": precache_node_info,
            }
        )


class _NewConfig(_BaseConfig):
    def __init__(
        self,
        modes: Sequence[ProfileMode] | None = None,
        max_events_per_nc: int = 1_000_000,
        capture_enabled_for_nc: str | None = None,
        profile_output_dir: str = "./output",
        neff_cache_dir: str | None = None,
        precache_node_info: bool = True,
        correlate_device_time: bool = False,
    ) -> None:
        self._set(
            {
                "modes": modes,
                "max_events_per_nc": max_events_per_nc,
                "capture_enabled_for_nc": capture_enabled_for_nc,
                "profile_output_dir": profile_output_dir,
                "neff_cache_dir": neff_cache_dir,
                "precache_node_info": precache_node_info,
                "correlate_device_time": correlate_device_time,
            }
        )


NeuronConfig = _OldConfig if os.environ.get("NEURON_SIM_CORRELATE") == "0" else _NewConfig


class NeuronProfiler:
    """Puts the framework's trace beside the runtime's files of the same capture."""

    def __init__(self, config: Any) -> None:
        self.config = config

    def export_trace(self, profiler: torch.profiler.profile) -> None:
        """An ``on_trace_ready`` handler: writes ``trace.json`` into the capture's directory."""
        import _neuron_sim

        directory = _neuron_sim.counters()["last_directory"]
        if not directory:
            name = f"i-simulated_pid_{os.getpid()}"
            directory = Path(self.config.profile_output_dir) / name / str(time.time_ns())
        Path(directory).mkdir(parents=True, exist_ok=True)
        profiler.export_chrome_trace(str(Path(directory) / "trace.json"))
