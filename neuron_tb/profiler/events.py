"""Device time in ``events()`` and ``key_averages()``.

Kineto reports Neuron's work in two ways. Kernel events carry measured device time; torch puts
them into the device columns by itself. Driver events are windows, from enqueue to completion as
the host saw it: they are no device time, and torch takes them for work of the host thread, which
makes its CPU columns wrong. Here they become device rows, and their lengths a column of their own.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch._C._autograd import DeviceType
from torch.autograd.profiler_util import EventList, FunctionEvent, FunctionEventAvg, Kernel

from neuron_tb.profiler.measured import EXPLORER
from neuron_tb.profiler.names import add_time_names
from neuron_tb.profiler.table import annotated

_EventList: Any = EventList
_FunctionEvent: Any = FunctionEvent
_FunctionEventAvg: Any = FunctionEventAvg
_Kernel: Any = Kernel

_DRIVER = "privateuse1_driver"
_RUNTIME = "privateuse1_runtime"
_DEVICE_TIME = re.compile(r"(self_)?(?:cuda|xpu|privateuse1|device|neuron)_time(?:_total)?")


class LaunchWindow(_Kernel):  # type: ignore[misc]
    """A window in an operator's ``kernels``: ``duration`` is 0, ``window`` its length in µs."""

    window: float

    @classmethod
    def of(cls, event: Any) -> LaunchWindow:
        """The window of a driver event."""
        made: LaunchWindow = cls(event.name, event.device_index, 0.0)
        made.window = event.time_range.elapsed_us()
        return made

    def as_kernel(self) -> Any:
        """The entry that torch made of it."""
        return _Kernel(self.name, self.device, self.window)


class NeuronFunctionEvent(_FunctionEvent):  # type: ignore[misc]
    """A FunctionEvent that knows windows and CUDA's names for device times.

    ``neuron_window_total``, ``self_neuron_window`` (µs): windows of an operator with and without
    its children's. ``unmeasured_launches``: launches that no device time and no window belong to.
    """

    unmeasured_launches = 0
    # Older torch does not set them.
    activity_type: str | None = None
    linked_correlation_id = 0

    @property
    def self_neuron_window(self) -> float:
        """Windows of the operator itself, µs."""
        return sum((k.window for k in self.kernels if isinstance(k, LaunchWindow)), 0.0)

    @property
    def neuron_window_total(self) -> float:
        """Windows of the operator and of all it calls, µs."""
        own: float = self.self_neuron_window
        return own + sum((c.neuron_window_total for c in self.cpu_children), 0.0)


class NeuronWindowEvent(NeuronFunctionEvent):
    """A driver event as a device row: it has a window and no device time."""

    @property
    def device_time_total(self) -> float:
        """0.0: a window is not device time."""
        return 0.0

    @property
    def self_device_time_total(self) -> float:
        """0.0: a window is not device time."""
        return 0.0

    @property
    def self_neuron_window(self) -> float:
        """Enqueue to completion, µs."""
        length: float = self.time_range.elapsed_us()
        return length

    @property
    def neuron_window_total(self) -> float:
        """Enqueue to completion, µs."""
        return self.self_neuron_window


class NeuronFunctionEventAvg(_FunctionEventAvg):  # type: ignore[misc]
    """A FunctionEventAvg with windows, in µs, and CUDA's names for device times."""

    neuron_window_total = 0.0
    self_neuron_window = 0.0
    unmeasured_launches = 0


class NeuronEventList(_EventList):  # type: ignore[misc]
    """An EventList whose table has the windows and says where device times come from."""

    def key_averages(self, *arguments: Any, **more: Any) -> Any:
        """As torch's, with windows and with names for times as GPU scripts use them."""
        averages = super().key_averages(*arguments, **more)
        averages.__class__ = NeuronEventList
        for average in averages:
            average.__class__ = NeuronFunctionEventAvg
        if any(event.unmeasured_launches or event.self_neuron_window for event in self):
            _add_windows(averages, self, *arguments, **more)
        averages.lines = self.lines
        return averages

    def table(self, *arguments: Any, **more: Any) -> Any:
        """The table of torch with a column of windows where there are any, and the source below."""
        if not any(event.self_device_time_total for event in self):
            more = _sorted_by_windows(more)
        text = super().table(*arguments, **more)
        return annotated(text, self, arguments, more)


def _sorted_by_windows(given: dict[str, Any]) -> dict[str, Any]:
    """Where no device time was measured, windows take its part in the order of rows."""
    match = _DEVICE_TIME.fullmatch(str(given.get("sort_by")))
    if match is None:
        return given
    return {**given, "sort_by": "self_neuron_window" if match[1] else "neuron_window_total"}


class _DriverEvent:
    """A Kineto event that says it ran on the device, which is where it belongs."""

    def __init__(self, event: Any) -> None:
        self._event = event

    def device_type(self) -> Any:
        return DeviceType.PrivateUse1

    def __getattr__(self, name: str) -> Any:
        return getattr(self._event, name)


class KinetoResult:
    """Kineto's result as torch should parse it: driver events on the device.

    As they come they have the operator's thread and pass for host work: operators and memory
    would be taken for theirs, and torch's table fails where a range lies around them.
    """

    def __init__(self, result: Any) -> None:
        self._result = result

    def events(self) -> list[Any]:
        """All events; on a torch whose events do not tell their kind, as they come."""
        events = self._result.events()
        if not events or not hasattr(events[0], "activity_type"):
            return list(events)
        return [_DriverEvent(e) if e.activity_type() == _DRIVER else e for e in events]

    def __getattr__(self, name: str) -> Any:
        return getattr(self._result, name)


def _operators(events: Iterable[Any]) -> dict[int, Any]:
    """Host events that device work can belong to, by torch's id."""
    return {
        event.id: event
        for event in events
        if event.device_type == DeviceType.CPU and not event.linked_correlation_id
    }


def reclassified(events: list[Any]) -> list[Any]:
    """Events that torch parsed from a ``KinetoResult``, windows told from device time.

    To be called before torch builds its tree, which moves kernels between operators.
    """
    for event in events:
        event.__class__ = NeuronFunctionEvent
    operators = _operators(events)
    device = []
    for event in events:
        if event.device_type != DeviceType.PrivateUse1:
            continue
        device.append(event)
        if event.activity_type == _DRIVER:
            event.__class__ = NeuronWindowEvent
            operator = operators.get(event.linked_correlation_id)
            if operator is not None:
                window = LaunchWindow.of(event)
                operator.kernels[operator.kernels.index(window.as_kernel())] = window
            # A row of its own: averaged with measured executions of its name it would halve them.
            event.name += " (window)"
    if all(isinstance(e, NeuronWindowEvent) or e.is_user_annotation for e in device):
        # A range's copy on the device spans what is there: windows only, so it is one as well.
        for event in device:
            event.__class__ = NeuronWindowEvent
    return events


def has_device_time(events: Iterable[Any]) -> bool:
    """Whether any event is measured device time."""
    return any(
        event.device_type == DeviceType.PrivateUse1 and not isinstance(event, NeuronWindowEvent)
        for event in events
    )


def add_executions(
    events: list[Any], executions: Iterable[dict[str, Any]], trace_start_ns: int
) -> None:
    """Add measured executions as device rows, and to the kernels of their operators.

    To be called before torch builds its tree; ``executions`` as ``measured`` gives them.
    """
    operators = _operators(events)
    use_device = events[0].use_device if events else None
    for execution in executions:
        start_us = (execution["start_ns"] - trace_start_ns) / 1000
        duration_us = execution["duration_ns"] / 1000
        events.append(
            NeuronFunctionEvent(
                id=0,
                name=execution["name"],
                trace_name=execution["name"],
                overload_name="",
                thread=execution["core"],
                start_us=start_us,
                end_us=start_us + duration_us,
                input_shapes=[],
                stack=[],
                use_device=use_device,
                device_type=DeviceType.PrivateUse1,
                device_index=execution["core"],
            )
        )
        events[-1].activity_type = EXPLORER
        operator = operators.get(execution["operator"])
        if operator is not None:
            operator.append_kernel(execution["name"], execution["core"], duration_us)
    events.sort(key=lambda event: [event.time_range.start, -event.time_range.end])


def as_neuron_events(events: Any) -> None:
    """Give a list of torch's, whose tree is built, this module's class and its closing lines."""
    if type(events) is not _EventList:
        return
    events.__class__ = NeuronEventList
    for event in events:
        launched_by = event.cpu_parent if event.activity_type == _RUNTIME else None
        if launched_by is not None and not launched_by.kernels:
            launched_by.unmeasured_launches += 1
    events.lines = closing_lines(events)


def closing_lines(events: Sequence[Any]) -> list[str]:
    """What a table of ``events`` says below: the source of device times, windows, and gaps."""
    lines = []
    device = [
        e for e in events if e.device_type == DeviceType.PrivateUse1 and not e.is_user_annotation
    ]
    windows = [e for e in device if isinstance(e, NeuronWindowEvent)]
    launches = sum(e.activity_type == _RUNTIME for e in events)
    without = sum(e.unmeasured_launches for e in events)
    if any(event.activity_type == EXPLORER for event in device):
        lines.append(f"NEURON times: Neuron Explorer's system profile ({_how_measured(device)})")
    elif len(device) > len(windows):
        lines.append(f"NEURON times: kernel events of the trace ({_how_measured(device)})")
    if windows:
        lines.append(
            f"NEURON window total: {_union_us(windows) / 1000:.3f}ms (union per core; from enqueue "
            "to completion as the host saw it, not busy time)"
        )
    if len(device) == len(windows) and (windows or launches):
        lines.append(
            "No device time was measured; `neuron-explorer view --output-format json` on the "
            "Neuron Runtime's files makes the system_profile.json that has it"
        )
    if not (device or launches):
        lines.append("This profile has no work of the Neuron device")
    if without:
        lines.append(f"{without} of {launches} launches have no device time")
    return lines


def _how_measured(device: Sequence[Any]) -> str:
    module = getattr(torch, str(device[0].use_device), None)
    if getattr(module, "simulated", False):
        return "settings of a simulated device"
    return "measured on the device"


def _union_us(windows: Iterable[Any]) -> float:
    total, core, end = 0.0, None, 0.0
    for event in sorted(windows, key=lambda e: (e.device_index, e.time_range.start)):
        if event.device_index != core:
            core, end = event.device_index, event.time_range.start
        total += max(0.0, event.time_range.end - max(end, event.time_range.start))
        end = max(end, event.time_range.end)
    return total


def _add_windows(
    averages: Iterable[Any],
    events: Iterable[Any],
    shapes: bool = False,
    stack: int = 0,
    overload: bool = False,
    *unused: Any,
    **more: Any,
) -> None:
    shapes = more.get("group_by_input_shapes", shapes)
    stack = more.get("group_by_stack_n", stack)
    overload = more.get("group_by_overload_name", overload)

    def group(event: Any) -> tuple[str, ...]:
        kind = (event.node_id, event.device_type, event.is_legacy, event.is_user_annotation)
        key = [event.key, *map(str, kind)]
        key += [str(event.overload_name)] if overload else []
        key += [str(event.input_shapes)] if shapes else []
        return (*key, *event.stack[:stack])

    by_group = {group(average): average for average in averages}
    for event in events:
        average = by_group.get(group(event))
        if average is not None:
            average.self_neuron_window += event.self_neuron_window
            average.neuron_window_total += event.neuron_window_total
            average.unmeasured_launches += event.unmeasured_launches


add_time_names(NeuronFunctionEvent)
add_time_names(NeuronFunctionEventAvg)
