"""The few arguments of Kineto's events that join rows or place them on a device.

All other arguments stay text. Identifiers are decoded straight into integers; only events that
write them in another form (text, floats) are looked at a second time.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import msgspec
import numpy as np

from neuron_tb.converters.model import NONE, Int32, Int64
from neuron_tb.converters.model.numbers import integer


class _Ids(msgspec.Struct, gc=False):
    external_id: int = msgspec.field(name="External id", default=NONE)
    old_external_id: int = msgspec.field(name="external id", default=NONE)
    correlation: int = NONE
    nrt_sequence_id: int = NONE
    nrta_seq_id: int = NONE
    exec_id: int = NONE
    device: int = NONE
    nc_id: int = NONE
    nc_idx: int = NONE
    lnc_idx: int = NONE


class _LooseIds(msgspec.Struct, gc=False):
    external_id: Any = msgspec.field(name="External id", default=NONE)
    old_external_id: Any = msgspec.field(name="external id", default=NONE)
    correlation: Any = NONE
    nrt_sequence_id: Any = NONE
    nrta_seq_id: Any = NONE
    exec_id: Any = NONE
    device: Any = NONE
    nc_id: Any = NONE
    nc_idx: Any = NONE
    lnc_idx: Any = NONE


class _Key(msgspec.Struct, gc=False):
    neff_cache_key: Any = None


_FIELDS = _Ids.__struct_fields__
_DECODE = msgspec.json.Decoder(_Ids).decode
_DECODE_ALL = msgspec.json.Decoder(list[_Ids]).decode
_DECODE_LOOSE = msgspec.json.Decoder(_LooseIds).decode
_DECODE_KEY = msgspec.json.Decoder(_Key).decode
_NOTHING = _Ids()
_KEY = b'"neff_cache_key"'
_DEVICE_FIELDS = ("device", "nc_id", "nc_idx", "lnc_idx")
_LARGEST_DEVICE = 2**31


@dataclass(frozen=True, slots=True)
class Identifiers:
    """One entry per event, NONE where absent; ``neuron``: some argument is Neuron's own."""

    external_id: Int64
    correlation: Int64
    sequence_id: Int64
    exec_id: Int64
    device: Int32
    neuron: bool


def identifiers(args: Sequence[memoryview | msgspec.Raw | bytes]) -> Identifiers:
    """The identifiers in the arguments (JSON text, empty for none) of n events."""
    texts = [raw if isinstance(raw, memoryview) else memoryview(raw) for raw in args]
    present = [text for text in texts if len(text)]
    joined = b",".join(present)
    found = _columns(_decoded(present, joined))
    columns = found
    if len(present) < len(texts):
        columns = np.full((len(texts), len(_FIELDS)), NONE, np.int64)
        columns[np.fromiter(map(len, texts), np.int64, len(texts)) > 0] = found
    by_name = dict(zip(_FIELDS, columns.T, strict=True))
    device = np.full(len(texts), NONE, np.int32)
    for name in _DEVICE_FIELDS:
        hint = by_name[name]
        usable = (device == NONE) & (hint >= 0) & (hint < _LARGEST_DEVICE)
        device[usable] = hint[usable]
    sequence = _first(by_name["nrt_sequence_id"], by_name["nrta_seq_id"])
    return Identifiers(
        _first(by_name["external_id"], by_name["old_external_id"]),
        by_name["correlation"].copy(),
        sequence,
        by_name["exec_id"].copy(),
        device,
        bool((sequence != NONE).any()) or (_KEY in joined and any(map(_has_key, present))),
    )


def _decoded(texts: Sequence[memoryview], joined: bytes) -> list[_Ids]:
    try:
        return _DECODE_ALL(b"[%b]" % joined)
    except msgspec.DecodeError:
        return [_decoded_alone(text) for text in texts]


def _columns(ids: list[_Ids]) -> Int64:
    """All fields of n events, shape (n, fields)."""
    values: Iterable[int] = chain.from_iterable(map(msgspec.structs.astuple, ids))
    size = len(ids) * len(_FIELDS)
    try:
        columns = np.fromiter(values, np.int64, size)
    except OverflowError:  # identifiers are unsigned in some files
        values = map(integer, chain.from_iterable(map(msgspec.structs.astuple, ids)))
        columns = np.fromiter(values, np.int64, size)
    return columns.reshape(len(ids), len(_FIELDS))


def _decoded_alone(raw: memoryview) -> _Ids:
    try:
        return _DECODE(raw)
    except msgspec.ValidationError:
        return _loosely(raw)
    except msgspec.DecodeError:
        return _NOTHING


def _loosely(raw: memoryview) -> _Ids:
    try:
        loose = _DECODE_LOOSE(raw)
    except msgspec.ValidationError:  # arguments that are no object carry no identifiers
        return _NOTHING
    return _Ids(**{name: integer(getattr(loose, name)) for name in _FIELDS})


def _has_key(raw: memoryview) -> bool:
    try:
        return _DECODE_KEY(raw).neff_cache_key is not None
    except msgspec.DecodeError:
        return False


def _first(one: Int64, other: Int64) -> Int64:
    return np.where(one != NONE, one, other)
