"""Calls of ``torch.cuda`` that profiling and timing code makes, carried out on Neuron.

``torch.cuda.is_available()`` stays False and no device string changes: this is no migration tool.
Each call does what it did before wherever Neuron is not the device. Names that were imported from
torch.cuda before (``from torch.cuda import synchronize``) keep torch's function, except for NVTX.
"""

from __future__ import annotations

import functools
import os
import threading
from collections.abc import Callable
from typing import Any

import torch

from neuron_tb.profiler.device import synchronize_all, why_not
from neuron_tb.profiler.messages import say_once

Undo = Callable[[], None]

_cuda: Any = torch.cuda
_record_function: Any = torch.autograd.profiler.record_function
_emit_nvtx: Any = torch.autograd.profiler.emit_nvtx


def put_in_place(backend: str) -> list[Undo]:
    """Replace the calls; returns what puts torch's own back."""
    session = _Session()
    runtime = _Runtime(session)
    memory: Any = torch.cuda.memory
    new: list[tuple[Any, str, Any]] = [
        (_cuda, "synchronize", functools.partial(_synchronize, backend)),
        (_cuda, "cudart", lambda: runtime),
        (_cuda, "check_error", lambda result: None),
        (_cuda.profiler, "start", session.start),
        (_cuda.profiler, "stop", session.stop),
        (_emit_nvtx, "__enter__", _enter_emit_nvtx),
        (_emit_nvtx, "__exit__", lambda self, *error: False),
    ]
    new += [
        (memory, name, functools.partial(_ignored, f"torch.cuda.memory.{name}"))
        for name in ("_record_memory_history", "_dump_snapshot", "_snapshot")
    ]
    reset_peak = functools.partial(_reset_peak, backend)
    new += [(owner, "reset_peak_memory_stats", reset_peak) for owner in (memory, _cuda)]
    undo = [_replace(owner, name, function, backend) for owner, name, function in new]
    undo.append(_set(_cuda, "Event", _event_class(_cuda.Event, backend)))
    undo.append(_set(_cuda.nvtx, "_nvtx", _Nvtx(_cuda.nvtx._nvtx, backend)))
    return undo


def _replace(owner: Any, name: str, function: Any, backend: str) -> Undo:
    original = getattr(owner, name)

    @functools.wraps(original)
    def wrapper(*arguments: Any, **more: Any) -> Any:
        if why_not(backend) is None:
            return function(*arguments, **more)
        return original(*arguments, **more)

    return _set(owner, name, wrapper)


def _set(owner: Any, name: str, value: Any) -> Undo:
    original = getattr(owner, name)
    setattr(owner, name, value)

    def undo() -> None:
        if getattr(owner, name) is value:
            setattr(owner, name, original)

    return undo


def _synchronize(backend: str, device: Any = None) -> None:
    """One core when ``device`` names one by number, else all."""
    index = device if isinstance(device, int) else None
    if isinstance(device, (str, torch.device)):
        index = torch.device(device).index
    if index is None:
        synchronize_all(backend)
    else:
        getattr(torch, backend).synchronize(index)


def _reset_peak(backend: str, device: Any = None) -> None:
    reset = getattr(getattr(torch, backend), "reset_peak_memory_stats", None)
    if reset is not None:
        reset()


def _ignored(name: str, *arguments: Any, **more: Any) -> Any:
    say_once(name, f"{name} has no equivalent on Neuron; nothing is recorded", failure=True)
    return {"segments": [], "device_traces": []} if name.endswith("._snapshot") else None


def _enter_emit_nvtx(self: Any) -> Any:
    if not self.enabled:
        return None
    say_once("emit_nvtx", "emit_nvtx does nothing on Neuron; use record_function", failure=True)
    return self


def _event_class(original: Any, backend: str) -> Any:
    """A class to stand in for torch.cuda.Event, which only a CUDA build can make."""

    class Event:
        """Holds a torch.Event: a subclass of it would be refused by its ``elapsed_time``."""

        def __new__(cls, *arguments: Any, **more: Any) -> Any:
            return (
                super().__new__(cls) if why_not(backend) is None else original(*arguments, **more)
            )

        def __init__(
            self,
            enable_timing: bool = False,
            blocking: bool = False,
            interprocess: bool = False,
            external: bool = False,
        ) -> None:
            self._event: Any = torch.Event(
                device=backend, enable_timing=enable_timing, blocking=blocking
            )

        def record(self, stream: Any = None) -> None:
            self._event.record(*(() if stream is None else (stream,)))

        def wait(self, stream: Any = None) -> None:
            self._event.wait(*(() if stream is None else (stream,)))

        def query(self) -> bool:
            return bool(self._event.query())

        def synchronize(self) -> None:
            self._event.synchronize()

        def elapsed_time(self, end_event: Any) -> float:
            return float(self._event.elapsed_time(end_event._event))

    return Event


class _Nvtx:
    """NVTX ranges as record_function ranges, nested per thread.

    torch.cuda.nvtx's functions look this object up when they are called, so those imported
    earlier are covered.
    """

    def __init__(self, original: Any, backend: str) -> None:
        self._original = original
        self._backend = backend
        self._thread = threading.local()
        self._started: dict[int, Any] = {}
        self._lock = threading.Lock()
        self._last = 0

    def __getattr__(self, name: str) -> Any:
        if why_not(self._backend) is not None:
            return getattr(self._original, name)
        try:
            return {
                "rangePushA": self._push,
                "rangePop": self._pop,
                "markA": self._mark,
                "rangeStartA": self._start,
                "rangeEnd": self._end,
            }[name]
        except KeyError:
            raise AttributeError(f"NVTX's {name} has no equivalent on Neuron") from None

    def _ranges(self) -> list[Any]:
        if not hasattr(self._thread, "ranges"):
            self._thread.ranges = []
        ranges: list[Any] = self._thread.ranges
        return ranges

    def _push(self, message: str) -> int:
        ranges = self._ranges()
        ranges.append(_entered(message))
        return len(ranges) - 1

    def _pop(self) -> int:
        ranges = self._ranges()
        if not ranges:
            return -1
        ranges.pop().__exit__(None, None, None)
        return len(ranges)

    def _mark(self, message: str) -> None:
        _entered(message).__exit__(None, None, None)

    def _start(self, message: str) -> int:
        with self._lock:
            self._last += 1
            self._started[self._last] = _entered(message)
            return self._last

    def _end(self, handle: int) -> None:
        started = self._started.pop(handle, None)
        if started is not None:
            started.__exit__(None, None, None)


def _entered(message: str) -> Any:
    entered = _record_function(str(message))
    entered.__enter__()
    return entered


class _Session:
    """What cudaProfilerStart and cudaProfilerStop begin and end: one profile at a time."""

    def __init__(self) -> None:
        self._profile: Any = None

    def start(self) -> int:
        """Begin a profile, unless one is running: a second one would empty the first."""
        if self._profile is not None:
            return 0
        if torch._C._autograd._profiler_enabled():
            say_once("nested", "a profile is running already; cudaProfilerStart does nothing")
            return 0
        from neuron_tb.profiler.handlers import tensorboard_trace_handler

        directory = os.environ.get("NEURON_TB_DIR") or "neuron_profile"
        self._profile = torch.profiler.profile(
            activities=[
                torch.profiler.ProfilerActivity.CPU,
                torch.profiler.ProfilerActivity.PrivateUse1,
            ],
            on_trace_ready=tensorboard_trace_handler(directory),
        )
        self._profile.start()
        return 0

    def stop(self) -> int:
        """End the profile that ``start`` began and save its trace."""
        profile, self._profile = self._profile, None
        if profile is not None:
            profile.stop()
        return 0


class _Runtime:
    """What ``torch.cuda.cudart()`` returns: the profiler's calls of the CUDA runtime."""

    class cudaError:  # noqa: N801
        success = 0

    def __init__(self, session: _Session) -> None:
        self.cudaProfilerStart = session.start
        self.cudaProfilerStop = session.stop

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"cudart's {name} has no equivalent on Neuron")
