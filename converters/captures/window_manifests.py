"""The files that ``neuron_tb.profiler`` writes beside its traces, ``<trace>.neuron.json``.

They say which Neuron directory, rank and steps belong to a trace.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import msgspec

from neuron_tb.converters.model.numbers import integer

SUFFIX = ".neuron.json"
KNOWN_VERSION = 1

_MARK = "neuron_tb profile"
_MOST_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class WindowManifest:
    """What belongs to one trace; ``sessions``: the Neuron directories that can be found."""

    sessions: tuple[Path, ...]
    rank: int | None
    steps: tuple[int | None, int | None]
    version: int


class _Content(msgspec.Struct):
    manifest: str = ""
    version: object = None
    neuron_sessions: object = None
    rank: object = None
    steps: object = None


def manifest_of(trace: Path) -> WindowManifest | None:
    """The manifest beside a trace; None when there is none that can be read."""
    name = trace.name.removesuffix(".gz").removesuffix(".json") + SUFFIX
    place = trace.with_name(name)
    try:
        if not place.is_file() or place.stat().st_size > _MOST_BYTES:
            return None
        content = msgspec.json.decode(place.read_bytes(), type=_Content)
    except (OSError, msgspec.MsgspecError, RecursionError):
        return None
    if content.manifest != _MARK:
        return None
    listed = content.neuron_sessions if isinstance(content.neuron_sessions, list) else []
    steps = content.steps if isinstance(content.steps, list) else []
    first, last = (*map(_number, steps[:2]), None, None)[:2]
    found = (_session(trace, text) for text in listed if isinstance(text, str))
    return WindowManifest(
        tuple(session for session in found if session is not None),
        _number(content.rank),
        (first, last),
        integer(content.version),
    )


def _number(value: object) -> int | None:
    number = integer(value)
    return number if number >= 0 else None


def _session(trace: Path, text: str) -> Path | None:
    """The directory, which may have been moved or copied together with the trace."""
    named = Path(text)
    if "\0" in text:
        return None
    places = [named] if named.is_absolute() else []
    for above in (trace.parent, trace.parent.parent):
        places += [above.joinpath(*named.parts[-depth:]) for depth in (3, 2, 1)]
    return next((place for place in places if place.is_dir()), None)
