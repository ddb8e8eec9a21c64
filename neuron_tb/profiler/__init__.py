"""A drop-in for torch.profiler: GPU profiling code records Trainium.

>>> from neuron_tb.profiler import ProfilerActivity, profile, schedule
>>> with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as recorded:
...     train()
>>> print(recorded.key_averages().table(sort_by="self_cuda_time_total"))

Every name of ``torch.profiler`` is here, and is torch's own object; only ``profile`` is a subclass,
and the trace handlers can also write for XProf and Perfetto. torch is imported when one is used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch.profiler import (
        DeviceType,
        ExecutionTraceObserver,
        ProfilerAction,
        ProfilerActivity,
        kineto_available,
        record_function,
        schedule,
        supported_activities,
    )

    from neuron_tb.profiler.drop_in import profile
    from neuron_tb.profiler.handlers import perfetto_trace_handler, tensorboard_trace_handler

__all__ = [
    "DeviceType",
    "ExecutionTraceObserver",
    "ProfilerAction",
    "ProfilerActivity",
    "kineto_available",
    "perfetto_trace_handler",
    "profile",
    "record_function",
    "schedule",
    "supported_activities",
    "tensorboard_trace_handler",
]

_OWN = {
    "perfetto_trace_handler": "neuron_tb.profiler.handlers",
    "profile": "neuron_tb.profiler.drop_in",
    "tensorboard_trace_handler": "neuron_tb.profiler.handlers",
}


def __getattr__(name: str) -> Any:
    if name in _OWN:
        return getattr(import_module(_OWN[name]), name)
    if name in __all__:
        return getattr(import_module("torch.profiler"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
