"""Neuron's part of a profile's configuration."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

from neuron_tb.profiler.experimental import ExperimentalConfig, changed, custom_text
from neuron_tb.profiler.messages import say_once
from neuron_tb.profiler.paths import breaks_kineto, usable

_DIRECTORY = "profile_output_dir"


def configured(
    user: Any,
    directory: Path,
    arguments: Mapping[str, Any] | None,
    *,
    verbose: bool,
) -> tuple[Any, Path]:
    """The configuration to profile with, and the directory the Neuron Runtime writes to.

    A configuration of the user's that speaks to Neuron wins; only a path in it that would crash
    Kineto is replaced, in a copy. Any other one is copied and completed. ``verbose`` records call
    stacks, without which ``export_stacks`` writes empty files. Raises ValueError for a user's
    configuration that Kineto cannot take.
    """
    if custom_text(user):
        return _made_safe(user)
    chosen = dict(arguments or {})
    place = usable(Path(chosen.pop(_DIRECTORY, directory)))
    built = _of_torch_neuronx(place, chosen) or _plain(place, chosen)
    if user is not None:
        built = changed(user, custom_profiler_config=custom_text(built))
    return (changed(built, verbose=True) if verbose else built), place


def _of_torch_neuronx(place: Path, chosen: Mapping[str, Any]) -> Any:
    """A NeuronConfig of torch_neuronx's own class; None when there is none."""
    try:
        profiling: Any = import_module("torch_neuronx.profiling")
    except Exception:
        return None
    arguments: dict[str, Any] = {_DIRECTORY: str(place), "correlate_device_time": True}
    modes = getattr(profiling, "ProfileMode", None)
    if modes is not None:
        # Never DEVICE by default: it reserves about 5 GB of the device's memory on Trn2.
        arguments["modes"] = [modes.RUNTIME]
    arguments.update(chosen)
    accepted = inspect.signature(profiling.NeuronConfig).parameters
    if not any(p.kind is p.VAR_KEYWORD for p in accepted.values()):
        unknown = sorted(chosen.keys() - accepted.keys())
        if unknown:
            say_once("config", f"NeuronConfig does not know {', '.join(unknown)}", failure=True)
        arguments = {name: value for name, value in arguments.items() if name in accepted}
    try:
        built = profiling.NeuronConfig(**arguments)
    except Exception as error:
        say_once("config", f"NeuronConfig failed ({type(error).__name__}: {error})", failure=True)
        return None
    return built if isinstance(built, ExperimentalConfig) else None


def _plain(place: Path, chosen: Mapping[str, Any]) -> Any:
    entries = {_DIRECTORY: str(place), "modes": "RUNTIME", **chosen}
    texts = {
        name: ",".join(map(str, value)) if isinstance(value, (list, tuple)) else str(value)
        for name, value in entries.items()
    }
    for name, text in texts.items():
        if breaks_kineto(text):
            raise ValueError(f"{name}={text!r} cannot be passed to Kineto")
    text = ";".join(f"{name}:{value}" for name, value in texts.items())
    return ExperimentalConfig(custom_profiler_config=text)


def _made_safe(user: Any) -> tuple[Any, Path]:
    text = custom_text(user)
    before, named, rest = text.partition(f"{_DIRECTORY}:")
    value, semicolon, after = rest.partition(";")
    if any(c in before + after for c in "=#\r\n"):
        raise ValueError(f"Kineto cannot take custom_profiler_config {text!r} (= # or line break)")
    if not named or not value:
        return user, Path()
    if not breaks_kineto(value):
        return user, Path(value)
    place = usable(Path(value))
    safe = changed(user, custom_profiler_config=f"{before}{named}{place}{semicolon}{after}")
    return safe, place
