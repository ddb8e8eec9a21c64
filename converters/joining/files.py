"""Files that are joined as they are."""

from __future__ import annotations

import shutil
from pathlib import Path

from neuron_tb.converters.joining import Part


def take(part: Part, place: Path) -> None:
    """Put a file at ``place``: moved where that is allowed, else copied."""
    if part.movable:
        part.path.replace(place)
    else:
        shutil.copyfile(part.path, place)
