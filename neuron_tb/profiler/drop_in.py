"""``profile``: torch.profiler's class for Neuron, with no effect on torch itself."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch.profiler

from neuron_tb.profiler import hooks
from neuron_tb.profiler.options import Options, of_mapping
from neuron_tb.profiler.patches import in_force, takes_use_cuda

_Torch: Any = torch.profiler.profile


class profile(_Torch):  # type: ignore[misc]  # noqa: N801
    """``torch.profiler.profile`` that records Neuron where a script asks for another accelerator.

    Takes torch's arguments and ``neuron``: None for the options in force (those of
    ``neuron_tb.enable``, else the defaults), a mapping of options, an
    ``neuron_tb.profiler.options.Options``, or False for plain torch. On a machine with CUDA
    or without Neuron it is torch's class.
    """

    _neuron_tb_own = True

    def __init__(
        self, *, neuron: Options | Mapping[str, Any] | bool | None = None, **arguments: Any
    ) -> None:
        if neuron is False:
            super().__init__(**arguments)
            return
        options = _options(neuron)
        hooks.prepare_arguments(arguments, options, takes_use_cuda=takes_use_cuda())
        super().__init__(**arguments)
        hooks.constructed(self, options)

    def prepare_trace(self) -> None:
        """As torch's, with Neuron's configuration."""
        hooks.prepare_trace(self, super().prepare_trace)

    def start_trace(self) -> None:
        """As torch's, after all cores have come to rest."""
        hooks.start_trace(self, super().start_trace)

    def stop_trace(self) -> None:
        """As torch's, after all cores have come to rest."""
        hooks.stop_trace(self, super().stop_trace)

    def step(self) -> None:
        """As torch's."""
        hooks.step(self, super().step)

    def stop(self) -> None:
        """As torch's; says so when no step was recorded."""
        hooks.stop(self, super().stop)

    def export_chrome_trace(self, path: Any, **more: Any) -> None:
        """As torch's, any number of times, with a manifest beside the trace."""
        hooks.export_chrome_trace(self, super().export_chrome_trace, path, **more)

    def toggle_collection_dynamic(self, enable: bool, activities: Iterable[Any]) -> None:
        """As torch's; Neuron's device work stays on."""
        original: Callable[..., None] = super().toggle_collection_dynamic
        hooks.toggle(self, original, enable, activities)


def _options(given: Options | Mapping[str, Any] | bool | None) -> Options:
    if isinstance(given, Options):
        return given
    if isinstance(given, Mapping):
        return of_mapping(given)
    return in_force() or Options()


def _signature() -> inspect.Signature:
    """The signature of torch's with ``neuron``: clients keep the arguments that it names."""
    torchs = inspect.signature(_Torch.__init__)
    own = inspect.signature(profile.__init__).parameters["neuron"]
    return torchs.replace(parameters=[*torchs.parameters.values(), own])


setattr(profile.__init__, "__signature__", _signature())  # noqa: B010
