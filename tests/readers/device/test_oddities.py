"""Device profiles that hold anything: a Trace or one sentence, never a traceback."""

from __future__ import annotations

import contextlib
import datetime
import decimal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from neuron_tb.analysis.roofline import roofline
from neuron_tb.converters.errors import NeuronTbError
from neuron_tb.converters.load import load
from neuron_tb.converters.readers import read_device_profile
from neuron_tb.converters.readers.context import Context
from neuron_tb.converters.readers.device.names import ROW_TABLES
from tests.device_makers import metadata, summary, tables, write_tables
from tests.makers import write_json

_SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**70), 2**70),
    st.floats(),
    st.text(max_size=8),
    st.sampled_from(["12", "1e400", "-5", "NaN", "0x10", "tensor"]),
)
_VALUES = st.recursive(
    _SCALARS,
    lambda inner: (
        st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner, max_size=2)
    ),
    max_leaves=4,
)
_COLUMNS = sorted({column for rows in tables().values() for row in rows for column in row})
_ROWS = st.lists(
    st.dictionaries(st.sampled_from(_COLUMNS), _VALUES, max_size=6) | _VALUES, max_size=4
)


def _readable(action: Callable[[], object]) -> None:
    with contextlib.suppress(NeuronTbError):
        action()


@settings(max_examples=40, deadline=None)
@given(document=st.dictionaries(st.sampled_from(sorted(tables())), _ROWS, min_size=1, max_size=3))
def test_any_json_gives_a_trace_or_a_sentence(
    tmp_path_factory: pytest.TempPathFactory, document: dict[str, Any]
) -> None:
    path = write_json(tmp_path_factory.mktemp("j") / "device_profile_model_1.json", document)
    _readable(lambda: load(path, instructions=True))
    _readable(lambda: roofline(path))


_TIMES = ("start_ts", "end_ts", "duration_ns", "timestamp", "duration")
_ODD: dict[str, pa.Array] = {
    "text": pa.array(["7", "x", None]),
    "floats": pa.array([1.5, float("nan"), float("inf")]),
    "negative": pa.array([-1, -(2**63), 5]),
    "unsigned": pa.array([2**64 - 1, 0, None], pa.uint64()),
    "huge": pa.array([2**63 - 1, 2**62, 1], pa.int64()),
    "lists": pa.array([[1], None, [2, 3]]),
    "structures": pa.array([{"a": 1}, None, {"a": 2}]),
    "dates": pa.array([datetime.datetime(2026, 1, 1)] * 3),
    "decimals": pa.array([decimal.Decimal("1.25")] * 3),
    "dictionary": pa.array(["a", "b", "a"]).dictionary_encode(),
    "bytes": pa.array([b"\xff", b"", None]),
    "nulls": pa.nulls(3),
    "flags": pa.array([True, None, False]),
}


@pytest.mark.parametrize("kind", _ODD)
def test_any_type_of_column_gives_a_trace_or_a_sentence(tmp_path: Path, kind: str) -> None:
    content = tables()
    for name in ROW_TABLES:
        folder = tmp_path / name
        folder.mkdir()
        usual = {k: pa.array([v] * 3) for k, v in content[name][0].items()}
        usual["new column"] = _ODD[kind]
        odd = dict.fromkeys(usual, _ODD[kind])
        timed = {k: v if k in _TIMES else _ODD[kind] for k, v in usual.items()}
        for table in (usual, odd, timed):
            pq.write_table(pa.table(table), folder / f"{name}.parquet")
            trace = read_device_profile(folder, Context(), instructions=True)
            assert np.all(trace.slices.duration_ns >= 0)
            assert np.all(trace.slices.start_ns >= 0)


@pytest.mark.parametrize("value", [None, 0, -1, float("nan"), "x", 2**80, True])
def test_any_figure_gives_a_roofline(tmp_path: Path, value: Any) -> None:
    for key in summary():
        document = {"n_1": {**summary(), key: value}}
        (profile,) = roofline(write_json(tmp_path / "s.json", document)).profiles
        assert all((f.value is None) == bool(f.reason) for f in profile.figures.values())
    for key in metadata():
        rows = {"summary": [summary()], "metadata": [{**metadata(), key: value}]}
        path = write_json(tmp_path / "device_profile_model_1.json", rows)
        (profile,) = roofline(path).profiles
        assert all((f.value is None) == bool(f.reason) for f in profile.figures.values())


def test_an_empty_table_is_no_row(tmp_path: Path) -> None:
    schema = pa.schema([("start_ts", pa.int64()), ("engine", pa.string())])
    folder = write_tables(tmp_path / "p", {"Summary": [summary()]})
    pq.write_table(schema.empty_table(), folder / "ActiveTime.parquet")
    pq.write_table(schema.empty_table(), folder / "Instruction.parquet")
    assert not len(load(folder, instructions=True).slices)
