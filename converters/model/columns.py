"""Rows as numpy columns, and the table of strings that they number."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

Int64 = NDArray[np.int64]
Int32 = NDArray[np.int32]
UInt8 = NDArray[np.uint8]
Float64 = NDArray[np.float64]
Bools = NDArray[np.bool_]

NONE = -1
"""Marks an absent identifier, name or row number in an integer column."""


_C = TypeVar("_C", bound="Columns")


@dataclass(slots=True)
class Columns:
    """Equal-length numpy arrays, one per dataclass field."""

    def __len__(self) -> int:
        return len(getattr(self, fields(self)[0].name))

    def take(self: _C, rows: NDArray[Any] | slice) -> _C:
        """The same columns restricted to ``rows`` (a mask, positions or a slice)."""
        return type(self)(**{f.name: getattr(self, f.name)[rows] for f in fields(self)})

    @classmethod
    def empty(cls: type[_C]) -> _C:
        """Columns without rows."""
        return cls(**{f.name: np.empty(0, f.metadata["dtype"]) for f in fields(cls)})

    @classmethod
    def concatenate(cls: type[_C], parts: Sequence[_C]) -> _C:
        """The rows of all parts, in order."""
        if not parts:
            return cls.empty()
        return cls(
            **{f.name: np.concatenate([getattr(p, f.name) for p in parts]) for f in fields(cls)}
        )


def column(dtype: type[np.generic]) -> Any:
    """A dataclass field that holds one numpy column of this type."""
    return field(metadata={"dtype": dtype})


def places(kept: Bools) -> Int32:
    """The new position of every row, NONE for those that go.

    One entry more than there are rows: the last is that of NONE.
    """
    place = np.full(len(kept) + 1, NONE, np.int32)
    place[:-1][kept] = np.arange(np.count_nonzero(kept), dtype=np.int32)
    return place


class StringTable:
    """Distinct strings, numbered from 0 in order of first use."""

    def __init__(self, strings: Iterable[str] = ()) -> None:
        self._index = _Numbering()
        for text in strings:
            self._index[text]

    def intern(self, text: str) -> int:
        """The number of ``text``, which is added when new."""
        return self._index[text]

    def intern_all(self, texts: Iterable[str], count: int) -> Int32:
        """The numbers of ``count`` texts, shape (count,)."""
        return np.fromiter(map(self._index.__getitem__, texts), np.int32, count)

    def find(self, text: str) -> int:
        """The number of ``text``, or NONE."""
        return self._index.get(text, NONE)

    @property
    def strings(self) -> list[str]:
        """All strings in order of their numbers."""
        return list(self._index)

    def __len__(self) -> int:
        return len(self._index)


class _Numbering(dict[str, int]):
    def __missing__(self, key: str) -> int:
        number = len(self)
        self[key] = number
        return number
