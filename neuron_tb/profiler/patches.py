"""torch.profiler changed in place, so that names imported earlier and subclasses keep working."""

from __future__ import annotations

import functools
import inspect
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch.autograd.profiler
import torch.autograd.profiler_util
import torch.profiler.profiler
from torch.profiler import ProfilerActivity

from neuron_tb.profiler import hooks
from neuron_tb.profiler.configuration import configured
from neuron_tb.profiler.cuda_shims import put_in_place
from neuron_tb.profiler.device import why_not
from neuron_tb.profiler.experimental import can_pass_text
from neuron_tb.profiler.names import add_time_names
from neuron_tb.profiler.options import Options, of_mapping
from neuron_tb.profiler.paths import capture_directory
from neuron_tb.profiler.recording import adopt
from neuron_tb.profiler.window import Window

_Kineto: Any = torch.profiler.profiler._KinetoProfile
_Profile: Any = torch.profiler.profiler.profile
_Autograd: Any = torch.autograd.profiler.profile
_EventList: Any = torch.autograd.profiler_util.EventList
_Event: Any = torch.autograd.profiler_util.FunctionEvent
_Average: Any = torch.autograd.profiler_util.FunctionEventAvg

_OWN = "_neuron_tb_own"
"""Marks classes that carry out these steps themselves."""


class _State:
    """What is in force now. ``undo``: called in reverse order to restore torch."""

    options: Options | None = None
    undo: list[Callable[[], None]] = []  # noqa: RUF012
    shims: list[Callable[[], None]] = []  # noqa: RUF012


def enable(**options: Any) -> None:
    """Make torch.profiler record Neuron wherever a script asks for CUDA, XPU, MTIA or HPU.

    Takes the fields of ``neuron_tb.profiler.options.Options``. Calling it again only changes
    the options. Profiles on a machine with CUDA or without Neuron stay plain torch's.
    """
    switch_on(of_mapping(options))


def disable() -> None:
    """Put torch back as it was. A profile that is running ends as it began."""
    _State.options = None
    while _State.undo:
        _State.undo.pop()()


@contextmanager
def enabled(**options: Any) -> Iterator[None]:
    """``enable`` for a while; what was in force before comes back."""
    before = _State.options
    enable(**options)
    try:
        yield
    finally:
        if before is None:
            disable()
        else:
            switch_on(before)


def in_force() -> Options | None:
    """The options of ``enable``, None when it is not in force."""
    return _State.options


def switch_on(options: Options) -> None:
    """``enable`` with options that are made already."""
    if _State.options is None:
        missing = missing_parts()
        if missing:
            warnings.warn(
                f"torch {torch.__version__} lacks {', '.join(missing)}, so it was not changed. "
                "`from neuron_tb.profiler import profile` may still work.",
                RuntimeWarning,
                stacklevel=3,
            )
            return
        _change_torch()
    _State.options = options
    if not options.cuda_shims:
        _remove_shims()
    elif not _State.shims:
        _State.shims = put_in_place(options.backend)
        _State.undo.append(_remove_shims)


def missing_parts() -> list[str]:
    """The places of torch that ``enable`` changes and this torch does not have."""
    missing = [
        f"{owner.__module__}.{owner.__qualname__}.{name}"
        for owner, name in _places()
        if not callable(owner.__dict__.get(name))
    ]
    if not can_pass_text():
        missing.append("a readable _ExperimentalConfig")
    return missing


def takes_use_cuda() -> bool:
    """Whether this torch's profile still has the argument ``use_cuda`` (gone in 2.14)."""
    return "use_cuda" in inspect.signature(_Profile.__init__).parameters


def _remove_shims() -> None:
    while _State.shims:
        _State.shims.pop()()


def _places() -> list[tuple[Any, str]]:
    return [
        (_Kineto, "__init__"),
        (_Profile, "__init__"),
        (_Autograd, "__init__"),
        (_Kineto, "prepare_trace"),
        (_Kineto, "start_trace"),
        (_Kineto, "stop_trace"),
        (_Profile, "step"),
        (_Profile, "stop"),
        (_Kineto, "export_chrome_trace"),
        (_Kineto, "toggle_collection_dynamic"),
        (_EventList, "supported_export_stacks_metrics"),
    ]


def _change_torch() -> None:
    for owner, name in _places():
        _wrap(owner, name)
    for owner in (_Event, _Average):
        for name in add_time_names(owner):
            _State.undo.append(functools.partial(delattr, owner, name))
    if not hasattr(ProfilerActivity, "NEURON"):
        # torch 2.13 has it once the backend is named; scripts written for it run on older torch.
        ProfilerActivity.NEURON = ProfilerActivity.PrivateUse1  # type: ignore[attr-defined]
        _State.undo.append(_forget_neuron_name)


def _forget_neuron_name() -> None:
    if torch._C._get_privateuse1_backend_name() != "neuron":
        del ProfilerActivity.NEURON  # type: ignore[attr-defined]


def _wrap(owner: Any, name: str) -> None:
    original = owner.__dict__[name]
    around = _AROUND[owner, name]

    @functools.wraps(original)
    def wrapper(self: Any, *arguments: Any, **more: Any) -> Any:
        options = _State.options
        if options is None or getattr(type(self), _OWN, False):
            return original(self, *arguments, **more)
        return around(self, functools.partial(original, self), *arguments, **more)

    def restore() -> None:
        # Who wrapped this method after us stays in place; the wrapper itself then does nothing.
        if owner.__dict__.get(name) is wrapper:
            setattr(owner, name, original)

    setattr(owner, name, wrapper)
    _State.undo.append(restore)


def _around_kineto_init(self: Any, original: Callable[..., None], **arguments: Any) -> None:
    options = _State.options or Options()
    hooks.prepare_arguments(arguments, options, takes_use_cuda=True)
    original(**arguments)
    hooks.constructed(self, options)


def _around_profile_init(self: Any, original: Callable[..., None], **arguments: Any) -> None:
    options = _State.options or Options()
    hooks.prepare_arguments(arguments, options, takes_use_cuda=takes_use_cuda())
    original(**arguments)


def _around_autograd_init(
    self: Any, original: Callable[..., None], *positional: Any, **arguments: Any
) -> None:

    options = _State.options or Options()
    mapped = why_not(options.backend) is None
    if mapped:
        _map_legacy_device(arguments, options)
    original(*positional, **arguments)
    if mapped and getattr(self, "use_device", None) == options.backend:
        adopt(self, Window(options))


def _map_legacy_device(arguments: dict[str, Any], options: Options) -> None:
    """``use_cuda`` and ``use_device`` of the autograd profiler, recorded by Kineto.

    Without ``use_kineto`` torch would take times from every operator's marks, which are host times.
    """
    cuda = arguments.pop("use_cuda", False)
    if cuda or arguments.get("use_device") in ("cuda", "xpu", "mtia", "hpu", "privateuseone"):
        arguments["use_device"] = options.backend
    if arguments.get("use_device") == options.backend:
        arguments["use_kineto"] = True
        if arguments.get("experimental_config") is None:
            directory = capture_directory(None, options.directory)
            arguments["experimental_config"], _ = configured(
                None, directory, options.config, verbose=bool(arguments.get("with_stack"))
            )


def _around_metrics(self: Any, original: Callable[[], list[str]]) -> list[str]:
    return [*original(), "self_device_time_total", "self_neuron_time_total"]


_AROUND: dict[tuple[Any, str], Callable[..., Any]] = {
    (_Kineto, "__init__"): _around_kineto_init,
    (_Profile, "__init__"): _around_profile_init,
    (_Autograd, "__init__"): _around_autograd_init,
    (_Kineto, "prepare_trace"): hooks.prepare_trace,
    (_Kineto, "start_trace"): hooks.start_trace,
    (_Kineto, "stop_trace"): hooks.stop_trace,
    (_Profile, "step"): hooks.step,
    (_Profile, "stop"): hooks.stop,
    (_Kineto, "export_chrome_trace"): hooks.export_chrome_trace,
    (_Kineto, "toggle_collection_dynamic"): hooks.toggle,
    (_EventList, "supported_export_stacks_metrics"): _around_metrics,
}
