"""Running neuron-explorer on raw captures."""

from __future__ import annotations

import os
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from neuron_tb.converters.captures import explorer
from neuron_tb.converters.errors import NeuronTbError
from neuron_tb.converters.load import load
from tests.explorer_on_path import calls, install, write_raw_capture
from tests.makers import HOST, PID, operator, write_kineto

Patch = pytest.MonkeyPatch


@pytest.fixture(autouse=True)
def _quick(monkeypatch: Patch) -> None:
    monkeypatch.setattr(explorer, "_POLL_SECONDS", 0.02)
    monkeypatch.setattr(explorer, "_SETTLED_SECONDS", {"json": 0.2, "parquet": 0.2})
    monkeypatch.setattr(explorer, "_SETTLED_SERVING_SECONDS", {"json": 0.1, "parquet": 0.1})


def raw_capture(tmp_path: Path) -> Path:
    directory = write_raw_capture(tmp_path / "out" / f"{HOST}_pid_{PID}" / "1759300074000000000")
    write_kineto(directory / "trace.json", [operator("aten::mm", 0, 900)])
    return directory


def files(directory: Path) -> list[str]:
    return sorted(str(p.relative_to(directory)) for p in directory.rglob("*"))


def test_a_raw_capture_is_read_through_the_program_and_is_not_written_to(
    tmp_path: Path, monkeypatch: Patch
) -> None:
    directory = raw_capture(tmp_path)
    log = install(monkeypatch, tmp_path)
    before = files(tmp_path / "out")
    said: list[str] = []
    trace = load(tmp_path / "out", progress=said.append)
    assert trace.executions.duration_ns.tolist() == [10_000, 10_000]
    assert [p.pid for p in trace.processes] == [PID]
    assert files(tmp_path / "out") == before
    assert [words[:5] for words in calls(log)] == [
        ["view", "-d", str(directory), "--output-format", "json"]
    ]
    assert f"running neuron-explorer on {directory.name}" in said


def test_the_result_is_kept_until_the_capture_changes(tmp_path: Path, monkeypatch: Patch) -> None:
    directory = raw_capture(tmp_path)
    log = install(monkeypatch, tmp_path)
    for _ in range(2):
        assert len(load(directory).executions) == 2
    assert len(calls(log)) == 1
    write_raw_capture(directory, executions=3)
    assert len(load(directory).executions) == 3
    assert len(calls(log)) == 2


def test_a_release_without_json_gives_tables(tmp_path: Path, monkeypatch: Patch) -> None:
    directory = raw_capture(tmp_path)
    log = install(monkeypatch, tmp_path, NO_JSON="1")
    trace = load(directory)
    assert trace.executions.duration_ns.tolist() == [10_000, 10_000]
    assert [words[4] for words in calls(log)] == ["json", "parquet"]
    assert any(source.endswith(".parquet") or Path(source).is_dir() for source in trace.sources)


@pytest.mark.parametrize("switches", [{}, {"NO_JSON": "1"}])
def test_a_program_that_goes_on_serving_is_ended_with_all_it_started(
    tmp_path: Path, monkeypatch: Patch, switches: dict[str, str]
) -> None:
    child = tmp_path / "child"
    directory = raw_capture(tmp_path)
    install(monkeypatch, tmp_path, SERVE="1", CHILD=str(child), **switches)
    assert len(load(directory).executions) == 2
    assert not _runs(int(child.read_text()))


def _runs(pid: int) -> bool:
    for _ in range(100):
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except OSError:
            return False
        if state == "Z":
            return False
        time.sleep(0.02)
    return True


def test_output_is_not_taken_before_it_is_whole(tmp_path: Path, monkeypatch: Patch) -> None:
    directory = raw_capture(tmp_path)
    install(monkeypatch, tmp_path, SERVE="1", SLOW_WRITE="0.6")
    assert len(load(directory).executions) == 2


def test_a_program_that_fails_costs_a_sentence(tmp_path: Path, monkeypatch: Patch) -> None:
    directory = raw_capture(tmp_path)
    install(monkeypatch, tmp_path, FAIL="1")
    trace = load(directory)
    failed = next(f for f in trace.findings if f.kind == "explorer_failed")
    assert "asked to fail" in failed.message
    assert failed.message.count("asked to fail") == 1
    assert not list((tmp_path / "cache").rglob("*.json"))


def test_a_program_that_takes_too_long_is_ended(tmp_path: Path, monkeypatch: Patch) -> None:
    directory = raw_capture(tmp_path)
    child = tmp_path / "child"
    install(monkeypatch, tmp_path, DELAY="60", CHILD=str(child))
    monkeypatch.setenv(explorer.SWITCH, "1")
    begin = time.monotonic()
    findings = load(directory).findings
    assert time.monotonic() - begin < 20
    message = next(f.message for f in findings if f.kind == "explorer_failed")
    assert "was not finished after" in message
    assert not _runs(int(child.read_text()))


@pytest.mark.parametrize("value", ["0", "never", "off"])
def test_the_environment_can_forbid_it(tmp_path: Path, monkeypatch: Patch, value: str) -> None:
    directory = raw_capture(tmp_path)
    log = install(monkeypatch, tmp_path)
    monkeypatch.setenv(explorer.SWITCH, value)
    load(directory)
    assert calls(log) == []


def test_a_profile_beside_the_raw_files_is_enough(tmp_path: Path, monkeypatch: Patch) -> None:
    directory = raw_capture(tmp_path)
    log = install(monkeypatch, tmp_path)
    made = explorer.explored(directory)
    assert made is not None
    (directory / "system_profile.json").write_bytes((made / "system_profile.json").read_bytes())
    assert len(load(directory).executions) == 2
    assert len(calls(log)) == 1


def test_a_cache_that_cannot_be_written_is_done_without(tmp_path: Path, monkeypatch: Patch) -> None:
    directory = raw_capture(tmp_path)
    install(monkeypatch, tmp_path)
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert len(load(directory).executions) == 2


def test_two_processes_do_not_run_it_at_once(tmp_path: Path, monkeypatch: Patch) -> None:
    """The program serves on fixed ports: a second one would fail."""
    captures = [
        write_raw_capture(tmp_path / "out" / f"{HOST}_pid_{pid}" / "1") for pid in (501, 502)
    ]
    install(monkeypatch, tmp_path, DELAY="0.5")
    running: list[int] = []
    most: list[int] = []
    real = explorer.run

    def counted(capture: Path, into: Path, seconds: float) -> None:
        running.append(1)
        most.append(len(running))
        real(capture, into, seconds)
        running.pop()

    monkeypatch.setattr(explorer, "run", counted)
    with ThreadPoolExecutor() as pool:
        made = list(pool.map(explorer.explored, captures))
    assert all(made)
    assert most == [1, 1]


def test_old_results_are_forgotten(tmp_path: Path, monkeypatch: Patch) -> None:
    directory = raw_capture(tmp_path)
    install(monkeypatch, tmp_path)
    first = explorer.explored(directory)
    assert first is not None
    os.utime(first, (0, 0))
    write_raw_capture(directory, executions=3)
    second = explorer.explored(directory)
    assert second is not None
    assert not first.exists()
    assert second.exists()


def test_without_the_program_running_it_says_so(tmp_path: Path, monkeypatch: Patch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(NeuronTbError, match="not on the PATH"):
        explorer.run(tmp_path, tmp_path, 1)
    assert explorer.explored(tmp_path) is None
