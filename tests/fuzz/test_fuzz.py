"""Fuzzing of every JSON reader with hypothesis; NEURON_TB_FUZZ multiplies the number of tries."""

from __future__ import annotations

import gzip
import os

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from tests.fuzz import grammar, target

_MANY = int(os.environ.get("NEURON_TB_FUZZ", "1"))
_SETTINGS = settings(
    max_examples=1200 * _MANY, deadline=None, suppress_health_check=list(HealthCheck)
)

pytestmark = pytest.mark.slow


@_SETTINGS
@given(grammar.damaged_texts(grammar.documents("traceEvents", grammar.CHROME_EVENTS)))
def test_chrome_traces(data: bytes) -> None:
    target.read(data)


@_SETTINGS
@given(grammar.damaged_texts(grammar.documents("", grammar.CHROME_EVENTS)))
def test_bare_lists(data: bytes) -> None:
    target.read(data)


@_SETTINGS
@given(grammar.damaged_texts(grammar.documents("trace_events", grammar.PROFILE_ROWS)))
def test_system_profiles(data: bytes) -> None:
    target.read(data)


@_SETTINGS
@given(grammar.damaged_texts(grammar.documents("events", grammar.RUNTIME_EVENTS)))
def test_runtime_event_dumps(data: bytes) -> None:
    target.read(data)


@_SETTINGS
@given(st.one_of(st.binary(max_size=300), st.text(max_size=300).map(str.encode)))
@example(b"\xff\xfe{")
@example(b"\0[")
@example(b"")
def test_any_bytes(data: bytes) -> None:
    target.read(data)


@_SETTINGS
@given(st.binary(max_size=2000), st.integers(0, 2000), st.binary(max_size=8), st.integers(0, 3))
def test_damaged_gzip(content: bytes, at: int, junk: bytes, cut: int) -> None:
    packed = bytearray(gzip.compress(b'[{"ph":"X","ts":1,"dur":1,"name":"a"},' + content))
    packed[at : at + len(junk)] = junk
    target.read(bytes(packed[: len(packed) * (4 - cut) // 4]), ".json.gz")
