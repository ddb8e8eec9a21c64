"""Joining results of ranks that were converted apart, one file per output format.

Each has ``join(files, destination) -> list[Written]`` and reads and writes a file at a time:
however many ranks there are, memory holds one.
"""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import msgspec

from neuron_tb.converters.errors import NeuronTbError
from neuron_tb.converters.writers import Destination, Written


@dataclass(frozen=True, slots=True)
class Part:
    """A file to be joined: where it is, and whether it may be moved away from there.

    ``later_ns``: by how much its times move, because its host's clock was found to be behind.
    """

    path: Path
    movable: bool = False
    later_ns: int = 0


FOUND_ANEW = ("steps_not_listed",)
"""Findings that depend on all ranks: those of single ranks are no more true when joined."""

Joiner = Callable[[Sequence[Part], Destination], list[Written]]


@dataclass(frozen=True, slots=True)
class Identity:
    """Which process a row or file is of."""

    host: str
    pid: int
    rank: int | None

    @classmethod
    def of(cls, values: object) -> Identity | None:
        """The identity in a dictionary that a writer left, None when it is not one."""
        if not isinstance(values, dict):
            return None
        host, pid, rank = values.get("host"), values.get("pid"), values.get("rank")
        if not isinstance(host, str) or not isinstance(pid, int):
            return None
        return cls(host, pid, rank if isinstance(rank, int) else None)

    @property
    def order(self) -> tuple[bool, int, str, int]:
        """Sort key: by rank, then those without one by host and process id."""
        return self.rank is None, self.rank or 0, self.host, self.pid

    @property
    def label(self) -> str:
        """What to call it beside others: its rank, else its process id."""
        return f"pid {self.pid}" if self.rank is None else f"rank {self.rank}"


_DAMAGE = (
    *(ValueError, TypeError, LookupError, AttributeError, ArithmeticError, RecursionError),
    *(EOFError, zlib.error, gzip.BadGzipFile, msgspec.MsgspecError),
)
"""What reading raises where a file holds something else than our writers write."""


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """Whatever a damaged or foreign file makes the block raise becomes a NeuronTbError."""
    try:
        yield
    except _DAMAGE as error:
        raise NeuronTbError(
            f"{path} is damaged, or was not written by this version of neuron-tb convert, and "
            "cannot be joined."
        ) from error
