"""Asking a consumer's own code in a process of its own: its crash or hang cannot be ours."""

from __future__ import annotations

import gzip
import os
import subprocess
import sys
import zlib
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import msgspec

import neuron_tb

_START_SECONDS = 180
_SECONDS_PER_MEGABYTE = 30
_GZIP = b"\x1f\x8b"
_RESULT = "neuron_tb result: "


@dataclass(frozen=True, slots=True)
class Document:
    """A Chrome-trace file, read without any consumer: what it says about itself, and its events."""

    head: dict[str, Any]
    about: dict[str, Any]
    events: list[dict[str, Any]]

    def complete(self) -> list[dict[str, Any]]:
        """Its complete events (phase ``X``)."""
        return [event for event in self.events if event.get("ph") == "X"]


def read_document(path: Path) -> Document:
    """Read a file that ``convert`` wrote. Raises ValueError with a sentence if it is not whole."""
    try:
        data = path.read_bytes()
        head = msgspec.json.decode(gzip.decompress(data) if data[:2] == _GZIP else data)
    except (OSError, EOFError, zlib.error, msgspec.DecodeError) as error:
        raise ValueError(f"{path.name} is not whole: {error}") from error
    events = head.pop("traceEvents", None) if isinstance(head, dict) else None
    if not isinstance(events, list):
        raise ValueError(f"{path.name} has no list of events")
    return Document(head, head.get("neuron_tb", {}), events)


def counted_slices(document: Document, problems: list[str]) -> int:
    """Slices of the source that the file shows; a difference to its own count is a problem."""
    found = len(document.complete()) - int(document.about.get("added_events", 0))
    stated = document.about.get("slices")
    if stated is None:
        problems.append("the file does not say how many slices it shows")
    elif stated != found:
        problems.append(f"the file has {found} slices of the source, and says {stated}")
    return found


def installed(module: str) -> bool:
    """Whether a consumer can be asked at all."""
    return find_spec(module) is not None


def ask(module: str, *arguments: str, megabytes: float) -> dict[str, Any]:
    """Run ``python -m module arguments`` and return what it answered.

    Raises RuntimeError with a sentence when it crashes, takes too long or answers nothing.
    """
    root = str(Path(neuron_tb.__file__).resolve().parent.parent)
    path = os.pathsep.join(filter(None, [root, os.environ.get("PYTHONPATH", "")]))
    seconds = _START_SECONDS + _SECONDS_PER_MEGABYTE * megabytes
    try:
        done = subprocess.run(
            [sys.executable, "-m", module, *arguments],
            env={**os.environ, "PYTHONPATH": path},
            capture_output=True,
            text=True,
            timeout=seconds,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise RuntimeError(f"no answer after {seconds:.0f} seconds") from error
    for line in reversed(done.stdout.splitlines()):
        if line.startswith(_RESULT):
            answer: dict[str, Any] = msgspec.json.decode(line.removeprefix(_RESULT))
            return answer
    last = (done.stderr.strip() or "no message").splitlines()[-1]
    raise RuntimeError(f"ended with code {done.returncode}: {last}")


def answer(value: dict[str, Any]) -> None:
    """Print what the asked process found out."""
    print(_RESULT + msgspec.json.encode(value).decode(), flush=True)  # noqa: T201
