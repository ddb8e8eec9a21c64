"""What the drop-in remembers of one profile."""

from __future__ import annotations

import gzip
import shutil
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from neuron_tb.profiler.options import Options

_FIELD = "_neuron_tb"


@dataclass
class Window:
    """What is remembered of a profile on Neuron, from its construction to its last export.

    ``config``: the user's configuration. ``place``: where the Neuron Runtime writes; empty when
    unknown. ``recorded``: windows with an active step. ``prepared_ns``, ``first_step``,
    ``last_step``: of the window last started. ``ending``: the profile is being left.
    ``saved``: the window's trace, once it is saved. ``temporary``: the same where nobody but the
    drop-in asked for it.
    """

    options: Options
    config: Any = None
    place: Path = field(default_factory=Path)
    recorded: int = 0
    prepared_ns: int = 0
    first_step: int | None = None
    last_step: int | None = None
    ending: bool = False
    saved: Path | None = None
    temporary: Path | None = None


def of(profile: Any) -> Window | None:
    """The window of a torch profile (or of its inner autograd profile), None on plain torch."""
    window: Window | None = profile.__dict__.get(_FIELD)
    return window


def attach(profile: Any, window: Window) -> None:
    """Remember ``window`` with a profile."""
    profile.__dict__[_FIELD] = window


def copy_of_saved(window: Window, path: str) -> bool:
    """Write the window's saved trace to ``path`` once more; False when there is none."""
    saved = window.saved
    if saved is None or not saved.exists():
        return False
    if saved == Path(path).absolute():
        return True
    opened: Callable[..., Any] = gzip.open if saved.suffix == ".gz" else open
    with opened(saved, "rb") as source, Path(path).open("wb") as target:
        shutil.copyfileobj(source, target)
    return True
