"""Where the Neuron Runtime writes, and file names that no two ranks share."""

from __future__ import annotations

import hashlib
import inspect
import os
import re
import socket
import tempfile
from pathlib import Path
from typing import Any

from neuron_tb.profiler.messages import say_once

_BREAKS_KINETO = re.compile(r"[=#;:\r\n]|^\s|\s$")
_DEFAULT = "neuron_profile"
_TICK_NS = 20_000_000


def breaks_kineto(text: str) -> bool:
    """Whether a value would end, split or crash Kineto's line of configuration.

    Kineto reads ``key = value`` lines: a second ``=`` makes the line invalid and the process dies
    of a segmentation fault, ``#`` starts a comment, a line break starts another line; ``;`` and
    ``:`` separate the entries and the name from the value inside Neuron's own configuration.
    """
    return not text or _BREAKS_KINETO.search(text) is not None


def capture_directory(on_trace_ready: Any, wanted: str | None) -> Path:
    """The directory for the Neuron Runtime's files of a profile, absolute.

    The option first, then ``neuron_profile`` in the trace handler's directory, then
    ``NEURON_TB_DIR``, then ``./neuron_profile``.
    """
    handler = None if wanted else _directory_of(on_trace_ready)
    if wanted:
        return Path(wanted).absolute()
    if handler is not None:
        return (handler / _DEFAULT).absolute()
    return Path(os.environ.get("NEURON_TB_DIR") or _DEFAULT).absolute()


def usable(directory: Path) -> Path:
    """``directory``, or a place with a harmless name that ``directory`` then links to."""
    if not breaks_kineto(str(directory)):
        directory.mkdir(parents=True, exist_ok=True)
        return directory
    place = _harmless_place(directory)
    place.mkdir(parents=True, exist_ok=True)
    _link(directory, place)
    say_once(
        f"relocated {directory}",
        f"Kineto cannot take the path {directory}; the Neuron Runtime writes to {place}, which it "
        "links to",
    )
    return place


def worker_name() -> str:
    """A name for this process' files: host, process id, and the rank where there is one."""
    name = f"{socket.gethostname()}_{os.getpid()}"
    rank = os.environ.get("RANK")
    return f"{name}_rank{rank}" if rank and rank.isdigit() else name


def sessions_below(directory: Path, pid: int, since_ns: int) -> list[Path]:
    """Session directories of process ``pid`` (AWS's layout) that were written since a time."""
    found: list[Path] = []
    for process in directory.glob(f"*_pid_{pid}"):
        if not process.is_dir():
            continue
        # A long run has thousands of sessions and each window asks for its own: no Path for each.
        with os.scandir(process) as entries:
            inner = {entry.name for entry in entries if entry.is_dir()}
        if not inner:
            found += [process] if _written_ns(process) >= since_ns else []
        for name in inner:
            began_ns = int(name) if name.isdigit() else _written_ns(process / name)
            if began_ns >= since_ns:
                found.append(process / name)
    return sorted(found)


def _written_ns(session: Path) -> int:
    """When a session whose name is no time was last written to."""
    # File systems tell the time of the last tick of the kernel's clock.
    return session.stat().st_mtime_ns + _TICK_NS


def _directory_of(handler: Any) -> Path | None:
    """The directory that a handler was made with, torch's own being a closure over it."""
    if handler is None:
        return None
    try:
        known = inspect.getclosurevars(handler).nonlocals
    except (TypeError, ValueError):
        return None
    directory = known.get("dir_name")
    return Path(directory) if isinstance(directory, (str, os.PathLike)) else None


def _harmless_place(directory: Path) -> Path:
    digest = hashlib.sha256(str(directory).encode()).hexdigest()[:10]
    for above in directory.parents:
        if above != Path(above.anchor) and not breaks_kineto(str(above)):
            nearest = next((p for p in (above, *above.parents) if p.exists()), above)
            if os.access(nearest, os.W_OK):
                return above / f"{_DEFAULT}-{digest}"
    return Path(tempfile.gettempdir()) / f"{_DEFAULT}-{os.getuid()}-{digest}"


def _link(directory: Path, place: Path) -> None:
    directory.parent.mkdir(parents=True, exist_ok=True)
    if directory.is_symlink() or directory.exists():
        return
    try:
        directory.symlink_to(place, target_is_directory=True)
    except FileExistsError:
        # Another rank was first.
        return
    except OSError as error:
        say_once("link", f"{directory} could not be linked to {place}: {error}", failure=True)
