"""Reading and changing torch's ``_ExperimentalConfig``, most of whose fields Python cannot reach.

From torch 2.12 on ``custom_profiler_config`` is an attribute. Before, and for all other fields,
there are the constructor's arguments and the state that pickle takes.
"""

from __future__ import annotations

import copy
import functools
import re
from typing import Any

from torch._C import _profiler

ExperimentalConfig: Any = _profiler._ExperimentalConfig

_CUSTOM = "custom_profiler_config"
_PROBES: tuple[Any, ...] = (True, "x", ["x"])


def custom_text(config: Any) -> str:
    """``custom_profiler_config`` as Kineto will get it; "" for no configuration."""
    if config is None:
        return ""
    # An attribute that a Python subclass sets on an older torch never reaches Kineto.
    return str(config.__getstate__()[_positions()[_CUSTOM]])


def can_pass_text() -> bool:
    """Whether this torch's configuration can be read and changed as this module does it."""
    try:
        text = custom_text(changed(ExperimentalConfig(), **{_CUSTOM: "name:value"}))
    except Exception:
        return False
    return text == "name:value"


def changed(config: Any, **values: Any) -> Any:
    """A copy of ``config`` with other ``values`` of the constructor's arguments.

    It keeps the class and the attributes of a Python subclass, except on torch 2.9, which cannot
    restore a state: there it is torch's own class.
    """
    state = list(config.__getstate__())
    for name, value in values.items():
        state[_positions()[name]] = value
    kind: Any = type(config)
    # __setstate__ acts on an object only once, before its constructor has run.
    made = kind.__new__(kind)
    try:
        made.__setstate__(tuple(state))
    except RuntimeError:
        return ExperimentalConfig(**{name: state[at] for name, at in _positions().items()})
    if hasattr(config, "__dict__"):
        made.__dict__.update(copy.copy(config.__dict__))
    return made


@functools.cache
def _positions() -> dict[str, int]:
    """Where in the state each argument of the constructor is, found by trying."""
    default = ExperimentalConfig().__getstate__()
    found = {}
    for name in re.findall(r"(\w+): [^,=]+ = ", ExperimentalConfig.__init__.__doc__ or ""):
        for value in _PROBES:
            try:
                state = ExperimentalConfig(**{name: value}).__getstate__()
            except TypeError:
                continue
            differing = [n for n, field in enumerate(state) if field != default[n]]
            if len(differing) == 1:
                found[name] = differing[0]
    return found
