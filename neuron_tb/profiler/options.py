"""What a user can set. Imports the standard library only: it is read while torch is starting."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

ENVIRONMENT = "NEURON_TB"
"""The variable that turns the drop-in on in every process: ``1`` or ``name=value,…``."""

_YES = {"1", "true", "yes", "on"}
_NO = {"0", "false", "no", "off", ""}
_DEVICE_CHOICES = ("requested", "always")


@dataclass(frozen=True, slots=True)
class Options:
    """How profiles of torch.profiler are carried out on Neuron.

    ``device``: ``requested`` turns a requested accelerator into Neuron; ``always`` adds Neuron to
    every profile, for programs that ask for the CPU only when CUDA is absent. ``directory``: where
    the Neuron Runtime's files go (default: the trace handler's directory, else the environment's
    ``NEURON_TB_DIR``, else ``./neuron_profile``). ``sync_start``: wait for work queued before the
    window, so that it does not count into it. ``sync_steps``: also wait at every ``step()``; it
    serialises host and device, so it changes what is measured. ``cuda_shims``: make the calls of
    ``torch.cuda`` that profiling code needs work. ``config``: arguments for ``NeuronConfig``.
    ``backend``: the name of the PrivateUse1 backend that counts as Neuron.
    ``explorer_seconds``: how long ``events()`` and ``key_averages()`` may wait for
    ``neuron-explorer``; 0 never runs it. ``quiet``: print nothing but failures.
    """

    device: str = "requested"
    directory: str | None = None
    sync_start: bool = True
    sync_steps: bool = False
    cuda_shims: bool = False
    config: Mapping[str, Any] | None = None
    backend: str = "neuron"
    explorer_seconds: float = 60.0
    quiet: bool = False

    def __post_init__(self) -> None:
        if self.device not in _DEVICE_CHOICES:
            raise ValueError(f"device is {self.device!r}; it can be {' or '.join(_DEVICE_CHOICES)}")


def of_mapping(given: Mapping[str, Any]) -> Options:
    """Options by name. Raises TypeError with the known names for one that does not exist."""
    known = [field.name for field in fields(Options)]
    for name in given:
        if name not in known:
            raise TypeError(f"there is no option {name!r}; known are {', '.join(known)}")
    return Options(**given)


def of_text(text: str) -> Options | None:
    """What the environment variable asks for, None when it says no.

    Raises ValueError or TypeError when it cannot be read.
    """
    text = text.strip()
    if text.lower() in _NO:
        return None
    if text.lower() in _YES:
        return Options()
    given: dict[str, Any] = {}
    # A comma may stand in a path: only one before another option's name separates.
    names = "|".join(field.name for field in fields(Options))
    for part in re.split(rf",(?=\s*(?:{names})\b)", text):
        name, equals, value = part.partition("=")
        given[name.strip()] = _value(name.strip(), value.strip() if equals else "1")
    return of_mapping(given)


def as_text(options: Options) -> str:
    """The environment variable's value for ``options``; ``config`` cannot be passed that way."""
    default = Options()
    parts = []
    for field in fields(Options):
        value = getattr(options, field.name)
        if field.name != "config" and value != getattr(default, field.name):
            parts.append(f"{field.name}={int(value) if isinstance(value, bool) else value}")
    return ",".join(parts) or "1"


def _value(name: str, text: str) -> str | bool | float:
    default = getattr(Options(), name, None)
    if isinstance(default, float):
        return float(text)
    if not isinstance(default, bool):
        return text
    if text.lower() not in _YES | _NO:
        raise ValueError(f"{name}={text}: it can be 1 or 0")
    return text.lower() in _YES
