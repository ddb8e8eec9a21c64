"""Fuzzing of every reader with hypothesis; NEURON_TB_FUZZ multiplies the number of tries."""

from __future__ import annotations

import gzip
import io
import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

import neuron_tb
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
    target.read(bytes(packed[: len(packed) * (4 - cut) // 4]), "trace.json.gz")


def _table() -> bytes:
    pyarrow = pytest.importorskip("pyarrow", reason="reads Parquet")
    parquet = pytest.importorskip("pyarrow.parquet", reason="reads Parquet")
    rows = 20
    table = pyarrow.table(
        {
            "name": ["nc_exec_running", "nrt_execute"] * (rows // 2),
            "start_ts": [1_767_189_312_000_000_000 + n for n in range(rows)],
            "duration_ns": list(range(1, rows + 1)),
            "process_id": ["7"] * rows,
            "nc_idx": [0] * rows,
            "extra_attributes_json": ['{"a": 1}'] * rows,
        }
    )
    sink = io.BytesIO()
    parquet.write_table(table, sink)
    return sink.getvalue()


def test_the_undamaged_table_is_read(tmp_path: Path) -> None:
    path = tmp_path / "SystemProfileEvents.parquet"
    path.write_bytes(_table())
    assert len(neuron_tb.load(path).slices) == 20


@_SETTINGS
@given(st.integers(0, 1 << 14), st.binary(max_size=8), st.integers(0, 8), st.booleans())
def test_damaged_parquet(at: int, junk: bytes, cut: int, at_footer: bool) -> None:
    data = bytearray(_table())
    at = len(data) - 1 - at % 1500 if at_footer else at % len(data)
    data[max(at, 4) : at + cut] = junk
    target.read(bytes(data), "SystemProfileEvents.parquet")
