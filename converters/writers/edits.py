"""Changes of events' arguments, kept as columns and made when a chunk of events is written.

Arguments of the source are JSON text that passes through: a change inserts text, it decodes
nothing. A key that gets another name has ``source `` written before it, a key that is set
stands at the end of the object. Only arguments that cannot be taken apart, or that already
have a key of the new name, are decoded, one by one (``Edits.one``).
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from json.encoder import encode_basestring_ascii
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from neuron_tb.converters.model import NONE, Bools, Int32, Int64, StringTable
from neuron_tb.converters.model.arguments import Arguments
from neuron_tb.converters.model.members import Members, members
from neuron_tb.converters.model.ragged import Ragged, decimals, distinct_rows, joined, stacked

SOURCE = "source "
"""What stands before a key, category or name that the source had where another one is needed."""

EXTERNAL_ID = "External id"
_OTHER_EXTERNAL_ID = "external id"

_ABSENT = np.iinfo(np.int64).min
_decode_object = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_encode = msgspec.json.Encoder().encode


@dataclass(frozen=True, slots=True)
class _Rename:
    """``key`` becomes ``source key`` in these rows, unless its value's text matches."""

    key: str
    rows: Bools
    unless: str


class _Added(ABC):
    """A key that is set in some rows."""

    retains = False
    """Whether another value of the source stays, under another key."""

    def __init__(self, key: str) -> None:
        self.key = key

    @abstractmethod
    def present(self, rows: NDArray[np.intp]) -> Bools:
        """Which of these rows get the key."""

    @abstractmethod
    def values(self, rows: NDArray[np.intp]) -> Ragged:
        """The values of rows that get the key, as JSON text."""

    @abstractmethod
    def extend(self, count: int) -> None:
        """Make room for more rows, which do not get the key."""


class _Numbers(_Added):
    retains = True

    def __init__(self, key: str, count: int) -> None:
        super().__init__(key)
        self.column = np.full(count, _ABSENT, np.int64)

    def present(self, rows: NDArray[np.intp]) -> Bools:
        present: Bools = self.column[rows] != _ABSENT
        return present

    def values(self, rows: NDArray[np.intp]) -> Ragged:
        return decimals(self.column[rows])

    def extend(self, count: int) -> None:
        self.column = np.append(self.column, np.full(count, _ABSENT, np.int64))


class _Words(_Added):
    def __init__(self, key: str, count: int, words: StringTable) -> None:
        super().__init__(key)
        self.column = np.full(count, NONE, np.int32)
        self._words = words
        self._strings: list[str] = []

    def present(self, rows: NDArray[np.intp]) -> Bools:
        present: Bools = self.column[rows] != NONE
        return present

    def values(self, rows: NDArray[np.intp]) -> Ragged:
        if len(self._strings) < len(self._words):
            self._strings = self._words.strings
        code = self.column[rows]
        first, number = distinct_rows(code)
        texts = [encode_basestring_ascii(self._strings[c]).encode() for c in code[first].tolist()]
        return Ragged.of(texts).take(number)

    def extend(self, count: int) -> None:
        self.column = np.append(self.column, np.full(count, NONE, np.int32))


class _Pairs(_Added):
    def __init__(self, key: str, count: int) -> None:
        super().__init__(key)
        self.column = np.full((count, 2), _ABSENT, np.int64)

    def present(self, rows: NDArray[np.intp]) -> Bools:
        present: Bools = self.column[rows, 0] != _ABSENT
        return present

    def values(self, rows: NDArray[np.intp]) -> Ragged:
        one, other = self.column[rows, 0], self.column[rows, 1]
        return joined(b"[", decimals(one), b",", decimals(other), b"]")

    def extend(self, count: int) -> None:
        more = np.full((count, 2), _ABSENT, np.int64)
        self.column = np.concatenate([self.column, more])


class _Texts(_Added):
    """JSON texts of single rows."""

    def __init__(self, key: str) -> None:
        super().__init__(key)
        self.texts: dict[int, bytes] = {}

    def present(self, rows: NDArray[np.intp]) -> Bools:
        return np.isin(rows, np.fromiter(self.texts, np.intp, len(self.texts)))

    def values(self, rows: NDArray[np.intp]) -> Ragged:
        return Ragged.of([self.texts[row] for row in rows.tolist()])

    def extend(self, count: int) -> None:
        pass


class Edits:
    """What is to be done with the arguments of n events; ``words`` has the texts that are set."""

    def __init__(self, count: int, words: StringTable) -> None:
        self._count, self._words = count, words
        self._renames: list[_Rename] = []
        self._added: dict[str, _Added] = {}

    def rename(self, key: str, rows: Bools, unless: str = "") -> None:
        """Call a key ``source key`` in the rows of this mask.

        ``unless``: where this pattern is found in the value's JSON text, it keeps its key.
        """
        if rows.any():
            self._renames.append(_Rename(key, rows.copy(), unless))

    def set_numbers(self, key: str, rows: NDArray[np.integer], values: Any) -> None:
        """Set an argument of these rows; another value of the source stays as ``source key``."""
        column = self._added.get(key)
        if column is None:
            column = self._added[key] = _Numbers(key, self._count)
        assert isinstance(column, _Numbers)
        column.column[rows] = values

    def set_words(self, key: str, rows: NDArray[np.integer], words: Int32 | int) -> None:
        """Set an argument of these rows to texts, given as positions in the words."""
        column = self._added.get(key)
        if column is None:
            column = self._added[key] = _Words(key, self._count, self._words)
        assert isinstance(column, _Words)
        column.column[rows] = words

    def set_pairs(self, key: str, rows: NDArray[np.integer], one: Int64, other: Int64) -> None:
        """Set an argument of these rows to lists of two numbers."""
        column = self._added.get(key)
        if column is None:
            column = self._added[key] = _Pairs(key, self._count)
        assert isinstance(column, _Pairs)
        column.column[rows, 0], column.column[rows, 1] = one, other

    def set_values(self, key: str, rows: Sequence[int], values: Sequence[Any]) -> None:
        """Set an argument of a few rows to anything that JSON can hold."""
        column = self._added.setdefault(key, _Texts(key))
        assert isinstance(column, _Texts)
        column.texts.update(zip(rows, map(_encode, values), strict=True))

    def extend(self, count: int) -> None:
        """Make room for more events."""
        self._count += count
        for added in self._added.values():
            added.extend(count)
        more = np.zeros(count, np.bool_)
        self._renames = [_Rename(r.key, np.append(r.rows, more), r.unless) for r in self._renames]

    # -- one event ----------------------------------------------------------------------------

    def one(self, arguments: bytes, row: int) -> bytes:
        """The arguments of one event, decoded and encoded again: the plain way."""
        values: dict[str, Any] = decoded_lazily(arguments)
        for rename in self._renames:
            old = bytes(values.get(rename.key, b""))
            kept = rename.unless and re.search(rename.unless.encode(), old)
            if old and rename.rows[row] and not kept:
                values[SOURCE + rename.key] = values.pop(rename.key)
        place = np.array([row])
        for added in self._added.values():
            if not added.present(place)[0]:
                continue
            new = added.values(place).tobytes()
            if added.retains and added.key in values and bytes(values[added.key]) != new:
                values[SOURCE + added.key] = values.pop(added.key)
            if added.key == EXTERNAL_ID and _OTHER_EXTERNAL_ID in values:
                values[SOURCE + _OTHER_EXTERNAL_ID] = values.pop(_OTHER_EXTERNAL_ID)
            values[added.key] = msgspec.Raw(new)
        return _encode(values) if values or arguments else b""

    # -- many events --------------------------------------------------------------------------

    def many(
        self,
        arguments: Arguments,
        starts: Int64,
        lengths: NDArray[np.integer],
        rows: NDArray[np.intp],
    ) -> Ragged:
        """The arguments of these rows as JSON objects on one line each, empty for none.

        ``starts``, ``lengths``: where the source's arguments of each row stand.
        """
        edited = np.zeros(len(rows), np.bool_)
        for added in self._added.values():
            edited |= added.present(rows)
        new = edited & (lengths == 0)
        for rename in self._renames:
            edited |= rename.rows[rows]
        texts = arguments.rows(starts, lengths)
        if new.any():
            place = np.where(new, len(rows), np.arange(len(rows)))
            texts = stacked([texts, Ragged.of([b"{}"])]).take(place)
        sizes = texts.lengths
        data = texts.tobytes().replace(b"\n", b" ")
        found = _Found(members(data, sizes), sizes)
        alone = ~found.plain & (edited | ~found.is_object)
        if edited.any():
            changes = _Insertions(found)
            for rename in self._renames:
                changes.rename(rename, rows)
            for added in self._added.values():
                changes.add(added, rows)
            alone |= changes.clash
            result = changes.made()
        else:
            result = Ragged.back_to_back(data, sizes)
        if not alone.any():
            return result
        few = np.flatnonzero(alone)
        ends = np.cumsum(sizes)
        single = [self.one(data[int(ends[i] - sizes[i]) : int(ends[i])], int(rows[i])) for i in few]
        return result.replaced(few, Ragged.of(single))


class _Found:
    """The members of a chunk of arguments, by key."""

    def __init__(self, apart: Members, sizes: Int64) -> None:
        self.apart, self.sizes = apart, sizes
        n = len(sizes)
        self.start = np.cumsum(sizes) - sizes
        self.data = np.frombuffer(apart.text, np.uint8)
        self.plain = np.ones(n, np.bool_)
        self.plain[apart.others] = False
        self.is_object = (sizes == 0) | (self.data[self.start] == ord("{"))
        self.tail = self.start + 1  # where further members can be written
        self.empty = np.zeros(n, np.bool_)
        for shape in apart.shapes:
            if shape.keys:
                self.tail[shape.rows] = apart.end[shape.first + len(shape.keys) - 1]
            else:
                self.empty[shape.rows] = True

    def have(self, key: str) -> Bools:
        """Which rows have a key."""
        found = np.zeros(len(self.plain), np.bool_)
        found[self.apart.find(key.encode())[0]] = True
        return found


class _Insertions:
    """Texts to be inserted into a chunk of arguments.

    ``clash``: rows where a new key is there already, or one key changes twice.
    """

    def __init__(self, found: _Found) -> None:
        self._found = found
        self._nowhere = np.zeros(len(found.plain), np.bool_)
        self.clash = self._nowhere.copy()
        self._empty = found.empty.copy()
        self._renamed: dict[str, Bools] = {}
        self._rows: list[NDArray[np.intp]] = []
        self._places: list[Int64] = []
        self._texts: list[Ragged] = []

    def rename(self, rename: _Rename, rows: NDArray[np.intp]) -> None:
        """Call a key ``source key`` where it applies."""
        mine, member = self._found.apart.find(rename.key.encode())
        applies = rename.rows[rows[mine]]
        mine, member = mine[applies], member[applies]
        if rename.unless and len(mine):
            kept = self._found.apart.values(member).match(rename.unless)
            mine, member = mine[~kept], member[~kept]
        self._rename(rename.key, mine, member)

    def add(self, added: _Added, rows: NDArray[np.intp]) -> None:
        """Set a key where it applies."""
        found = self._found
        present = added.present(rows) & found.plain
        if added.key == EXTERNAL_ID:
            mine, member = found.apart.find(_OTHER_EXTERNAL_ID.encode())
            self._rename(_OTHER_EXTERNAL_ID, mine[present[mine]], member[present[mine]])
        mine, member = found.apart.find(added.key.encode())
        mine, member = mine[present[mine]], member[present[mine]]
        if not added.retains:
            self.clash[mine] = True
        elif len(mine):
            self.clash[mine] |= self._renamed.get(added.key, self._nowhere)[mine]
            differs = found.apart.values(member).differ(added.values(rows[mine]))
            self._rename(added.key, mine[differs], member[differs])
            present[mine[~differs]] = False
        here = np.flatnonzero(present)
        if not len(here):
            return
        key = encode_basestring_ascii(added.key).encode() + b":"
        before = Ragged.of([b"," + key, key]).take(self._empty[here].astype(np.intp))
        self._insert(here, found.tail[here], joined(before, added.values(rows[here])))
        self._empty[here] = False

    def _rename(self, key: str, rows: NDArray[np.intp], member: Int64) -> None:
        if len(rows):
            self.clash |= self._found.have(SOURCE + key)
            renamed = self._renamed.setdefault(key, self._nowhere.copy())
            self.clash[rows] |= renamed[rows]
            renamed[rows] = True
            text = Ragged.of([SOURCE.encode()]).take(np.zeros(len(rows), np.intp))
            self._insert(rows, self._found.apart.key[member] + 1, text)

    def _insert(self, rows: NDArray[np.intp], places: Int64, texts: Ragged) -> None:
        self._rows.append(rows)
        self._places.append(places)
        self._texts.append(texts)

    def made(self) -> Ragged:
        """The texts of all rows with everything inserted."""
        found = self._found
        sizes = found.sizes
        if not self._rows:
            return Ragged.back_to_back(found.apart.text, sizes)
        rows, places = np.concatenate(self._rows), np.concatenate(self._places)
        texts = stacked(self._texts)
        order = np.argsort(places, kind="stable")
        # Text of the source and inserted text alternate.
        bounds = np.concatenate(([0], places[order], [int(sizes.sum())]))
        pieces = stacked([Ragged.ranges(found.apart.text, bounds[:-1], np.diff(bounds)), texts])
        sequence = np.empty(2 * len(rows) + 1, np.int64)
        sequence[0::2] = np.arange(len(rows) + 1)
        sequence[1::2] = len(rows) + 1 + order
        grown = np.bincount(rows, weights=texts.lengths, minlength=len(sizes)).astype(np.int64)
        return Ragged.back_to_back(pieces.take(sequence).tobytes(), sizes + grown)


def decoded_lazily(text: bytes) -> dict[str, Any]:
    """The keys of arguments with their values as raw JSON."""
    if not text:
        return {}
    try:
        return dict(_decode_object(text))
    except msgspec.ValidationError:  # not an object
        return {"value": msgspec.Raw(msgspec.json.format(text, indent=-1))}
    except msgspec.DecodeError:
        return {"value": text.decode("utf-8", "replace")}
