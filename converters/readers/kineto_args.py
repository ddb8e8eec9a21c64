"""The few arguments of Kineto's events that join rows or place them on a device.

All other arguments stay text. Identifiers are decoded straight into integers; only events that
write them in another form (text, floats) are looked at a second time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

import msgspec
import numpy as np

from neuron_tb.converters.readers.columns import integer
from neuron_tb.converters.trace import NONE, Int64


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
    neff_cache_key: Any = None


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
    neff_cache_key: Any = None


_FIELDS = tuple(name for name in _Ids.__struct_fields__ if name != "neff_cache_key")
_DECODE = msgspec.json.Decoder(_Ids).decode
_DECODE_LOOSE = msgspec.json.Decoder(_LooseIds).decode
_NOTHING = _Ids()
_DEVICE_FIELDS = ("device", "nc_id", "nc_idx", "lnc_idx")
_LARGEST_DEVICE = 2**31


@dataclass(frozen=True, slots=True)
class Identifiers:
    """One entry per event, NONE where absent; ``neuron``: some argument is Neuron's own."""

    external_id: Int64
    correlation: Int64
    sequence_id: Int64
    exec_id: Int64
    device: Int64
    neuron: bool


def identifiers(args: Sequence[msgspec.Raw | bytes]) -> Identifiers:
    """The identifiers in the arguments (JSON text) of n events."""
    ids = [_decoded(raw) for raw in args]

    def column(name: str) -> Int64:
        values = map(attrgetter(name), ids)
        try:
            return np.fromiter(values, np.int64, len(ids))
        except OverflowError:  # identifiers are unsigned in some files
            return np.fromiter((integer(getattr(i, name)) for i in ids), np.int64, len(ids))

    device = np.full(len(ids), NONE, np.int64)
    for name in _DEVICE_FIELDS:
        hint = column(name)
        device = np.where((device == NONE) & (hint >= 0) & (hint < _LARGEST_DEVICE), hint, device)
    sequence = _first(column("nrt_sequence_id"), column("nrta_seq_id"))
    return Identifiers(
        _first(column("external_id"), column("old_external_id")),
        column("correlation"),
        sequence,
        column("exec_id"),
        device,
        bool((sequence != NONE).any()) or any(i.neff_cache_key is not None for i in ids),
    )


def _decoded(raw: msgspec.Raw | bytes) -> _Ids:
    try:
        return _DECODE(raw)
    except msgspec.ValidationError:
        return _loosely(raw)
    except msgspec.DecodeError:  # no arguments at all
        return _NOTHING


def _loosely(raw: msgspec.Raw | bytes) -> _Ids:
    try:
        loose = _DECODE_LOOSE(raw)
    except msgspec.ValidationError:  # arguments that are no object carry no identifiers
        return _NOTHING
    known = {name: integer(getattr(loose, name)) for name in _FIELDS}
    return _Ids(**known, neff_cache_key=loose.neff_cache_key)


def _first(one: Int64, other: Int64) -> Int64:
    return np.where(one != NONE, one, other)
