"""A new format is one file and one line: docs/extending.md, carried out."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

import neuron_tb
from neuron_tb.converters.errors import NeuronTbError
from neuron_tb.converters.readers import FORMATS, Format
from neuron_tb.converters.writers.targets import TARGETS, Target

BASE_NS = 1_767_189_312_000_000_000
TABLE = f"""start_ns,duration_ns,thread,name
{BASE_NS + 100},50,main,load
{BASE_NS + 20},300,main,step
not a number,1,main,lost
{BASE_NS + 40},7,helper,read
"""


@pytest.fixture(autouse=True)
def registered(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    form = Format(
        "tests.extending.slices_csv", "table of slices (CSV)", False, suffix=".csv", anywhere=True
    )
    text = Target("text/{run}.txt", "people", "tests.extending.slices_text")
    monkeypatch.setitem(TARGETS, "text", text)
    FORMATS.insert(0, form)
    yield
    FORMATS.remove(form)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "t.csv").write_text(TABLE)
    return tmp_path / "in"


def test_a_new_reader_feeds_every_writer(folder: Path, tmp_path: Path) -> None:
    conversion = neuron_tb.convert(folder, out=tmp_path / "out", run="r")
    written = {file.target: file.slices for file in conversion.written if file.path}
    assert written["perfetto"] == written["text"] == 3
    assert conversion.findings.of_kind("not_a_slice") == 1
    listed = json.loads((tmp_path / "out" / "r.json").read_text())["files"]
    assert "text/r.txt" in {file["path"] for file in listed}


def test_a_new_writer_takes_what_every_reader_gives(samples: Path, tmp_path: Path) -> None:
    neuron_tb.convert(samples / "rmsnorm" / "naive", out=tmp_path, to="text", run="r")
    lines = (tmp_path / "text" / "r.txt").read_text().splitlines()
    assert len(lines) == len(neuron_tb.load(samples / "rmsnorm" / "naive").slices)
    assert sum("aten::mul" in line for line in lines) >= 3


def test_both_together(folder: Path, tmp_path: Path) -> None:
    neuron_tb.convert(folder / "t.csv", out=tmp_path / "out", to="text", run="r")
    assert (tmp_path / "out" / "text" / "r.txt").read_text() == (
        f"{BASE_NS + 20} 300 main step\n{BASE_NS + 40} 7 helper read\n"
        f"{BASE_NS + 100} 50 main load\n"
    )


def test_results_that_nothing_joins_are_written_together(folder: Path, tmp_path: Path) -> None:
    (folder / "u.csv").write_text(TABLE)
    neuron_tb.convert(folder, out=tmp_path / "out", to="text", run="r")
    assert len((tmp_path / "out" / "text" / "r.txt").read_text().splitlines()) == 6
    for target, why in (("text", "cannot be joined"), ("perfetto", "do not know the format")):
        with pytest.raises(NeuronTbError, match=why):
            neuron_tb.convert(folder, out=tmp_path / "apart", to=target, run="r", workers=2)


def test_a_file_that_is_none_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("a,b\n1,2\n")
    with pytest.raises(NeuronTbError, match="no table of slices"):
        neuron_tb.load(tmp_path / "t.csv")


def test_the_walk_through_shows_these_files() -> None:
    """docs/extending.md quotes both modules whole, so it cannot fall behind."""
    text = (Path(__file__).parents[2] / "docs" / "extending.md").read_text()
    for module in ("slices_csv.py", "slices_text.py"):
        assert Path(__file__).with_name(module).read_text().strip() in text, module
