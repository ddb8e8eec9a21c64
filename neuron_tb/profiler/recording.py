"""The inner profile of torch (``torch.autograd.profiler.profile``) as it runs on Neuron."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from torch.autograd import profiler as autograd_profiler

from neuron_tb.profiler import measured
from neuron_tb.profiler import window as windows
from neuron_tb.profiler.device import synchronize_all
from neuron_tb.profiler.events import (
    KinetoResult,
    add_executions,
    as_neuron_events,
    has_device_time,
    reclassified,
)

_Base: Any = autograd_profiler.profile


class Recording(_Base):  # type: ignore[misc]
    """torch's own object, given this class by ``adopt``: nothing in torch is replaced."""

    def _start_trace(self) -> None:
        window = windows.of(self)
        if window is not None and window.options.sync_start:
            synchronize_all(window.options.backend)
        super()._start_trace()

    def __exit__(self, *error: Any) -> Any:
        window = windows.of(self)
        if window is not None and self.enabled:
            synchronize_all(window.options.backend)
        return super().__exit__(*error)

    def _parse_kineto_results(self, result: Any, *arguments: Any, **more: Any) -> Any:
        parsed = super()._parse_kineto_results(KinetoResult(result), *arguments, **more)
        events = reclassified(parsed)
        window = windows.of(self)
        if window is not None and not has_device_time(events):
            add_executions(events, measured.executions(self, window), result.trace_start_ns())
        return events

    def _ensure_function_events(self) -> None:
        super()._ensure_function_events()
        as_neuron_events(self._function_events)

    def export_chrome_trace(self, path: Any, *arguments: Any, **more: Any) -> None:
        """As torch's the first time; later exports are copies of the first file."""
        window = windows.of(self)
        if window is None or more.get("use_python_export"):
            super().export_chrome_trace(path, *arguments, **more)
            return
        if not windows.copy_of_saved(window, path):
            super().export_chrome_trace(path, *arguments, **more)
            window.saved = Path(path).absolute()


def adopt(profile: Any, window: windows.Window) -> None:
    """Make torch's inner profile behave as a ``Recording``."""
    if type(profile) is _Base:
        profile.__class__ = Recording
    windows.attach(profile, window)
