"""The readers by columns say what an obvious reader says, event by event."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path

import pytest

from benchmarks import generate
from neuron_tb.converters.model import Trace
from neuron_tb.converters.readers import read_file
from neuron_tb.converters.readers.json import chunks
from tests import plain_reader
from tests.plain_reader import PlainSlice, fixed_form, kineto_slices, system_rows

CASES = Path(os.environ.get("NEURON_TB_CASES", "")) if "NEURON_TB_CASES" in os.environ else None
_OTHER_SLICES = frozenset("BbSp")


def plain(trace: Trace) -> list[PlainSlice]:
    """The slices of a trace in the form of the obvious reader."""
    s = trace.slices
    return [
        PlainSlice(
            int(s.start_ns[row]),
            int(s.duration_ns[row]),
            trace.strings[s.name[row]],
            trace.strings[s.category[row]],
            int(s.external_id[row]),
            int(s.correlation[row]),
            int(s.sequence_id[row]),
            int(s.exec_id[row]),
            fixed_form(trace.args(row)),
        )
        for row in range(len(s))
    ]


def real_files() -> list[Path]:
    if CASES is None:
        return []
    found = [*CASES.glob("real/*.json*"), *CASES.glob("neuron/*.json")]
    return sorted(path for path in found if path.stat().st_size < 3 << 20)


@pytest.mark.skipif(CASES is None, reason="set NEURON_TB_CASES to the folder of test inputs")
@pytest.mark.parametrize("path", real_files(), ids=lambda path: path.name)
def test_files_of_strangers_have_the_slices_of_an_obvious_reader(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    try:
        document = plain_reader.load(path)
        events = document if isinstance(document, list) else document["traceEvents"]
        wanted = Counter(kineto_slices(path))
    except (ValueError, KeyError, TypeError, AttributeError, ArithmeticError) as error:
        pytest.skip(f"nothing for an obvious reader: {error!r}")
    if not any("ph" in event for event in events):
        pytest.skip("no Chrome trace")
    monkeypatch.setattr(chunks, "SIZE", 5000)
    found = Counter(plain(read_file(path)))
    assert not wanted - found
    if _OTHER_SLICES.isdisjoint(event.get("ph") for event in events):
        assert not found - wanted


@pytest.mark.parametrize("name", ["trace.json", "trace.json.gz"])
def test_a_made_up_trace_has_the_slices_of_an_obvious_reader_in_their_order(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = generate.kineto(tmp_path / name, 3000)
    monkeypatch.setattr(chunks, "SIZE", 20_000)
    assert plain(read_file(path)) == kineto_slices(path)


def test_system_profiles_have_the_rows_of_an_obvious_reader_in_either_format(
    tmp_path: Path,
) -> None:
    path = generate.system_json(tmp_path / "system.json", 2000)
    tables = generate.system_parquet(tmp_path / "tables", 2000)
    wanted = system_rows(path)
    for trace in (read_file(path), read_file(tables)):
        s = trace.slices
        names = [trace.strings[number] for number in s.name]
        columns = (s.start_ns, s.duration_ns, s.sequence_id, s.exec_id)
        rows = list(zip(names, *(column.tolist() for column in columns), strict=True))
        assert rows == wanted


def test_equal_seeds_give_equal_files(tmp_path: Path) -> None:
    one = generate.many_ranks(tmp_path / "one", 2, 300)
    other = generate.many_ranks(tmp_path / "other", 2, 300)
    files = sorted(path.relative_to(one) for path in one.rglob("*.json"))
    assert len(files) == 2
    assert all((one / f).read_bytes() == (other / f).read_bytes() for f in files)
    assert (one / files[0]).read_bytes() != (one / files[1]).read_bytes()
