"""Files appear whole or not at all."""

from __future__ import annotations

import json
import os
import random
import resource
import signal
import subprocess
import sys
import time
import unicodedata
from pathlib import Path

import pytest

from neuron_tb.converters.convert import TARGETS, convert, run_name
from neuron_tb.converters.errors import NeuronTbError
from neuron_tb.converters.storage.output import (
    TEMPORARY,
    remove_leftovers,
    replacing_directory,
    replacing_file,
    safe_name,
)
from tests.makers import operator, step, write_kineto

EVENTS = [step(1, 0, 100), operator("a", 10, 50)]


def leftovers(folder: Path) -> list[Path]:
    return [p for p in folder.rglob("*") if p.name.startswith(TEMPORARY)]


@pytest.mark.parametrize(
    "text",
    [
        "../../etc/passwd",
        "/abs",
        "a\0b",
        "a\nb",
        "..",
        ".",
        "",
        "x" * 5000,
        "\u00e9" * 300,
        "con/aux",
        "a b",
    ],
)
def test_a_name_from_a_trace_is_one_harmless_path_component(tmp_path: Path, text: str) -> None:
    name = safe_name(text)
    assert name
    assert not name.startswith(".")
    assert len(name.encode()) <= 120
    assert (tmp_path / name).parent == tmp_path
    (tmp_path / name).touch()


@pytest.mark.parametrize("hosts", [("Node", "node", "NODE"), ("caf\u00e9", "cafe\u0301", "x")])
@pytest.mark.parametrize("target", TARGETS)
def test_workers_whose_names_differ_in_case_only_have_a_file_each(
    tmp_path: Path, target: str, hosts: tuple[str, ...]
) -> None:
    for number, host in enumerate(hosts):
        write_kineto(tmp_path / f"{number}" / f"{host}_pid_7" / "1" / "trace.json", EVENTS)
    conversion = convert(tmp_path, out=tmp_path / "out", to=target, run="r")
    names = [file.path.name for file in conversion.written if file.path]
    assert len({unicodedata.normalize("NFC", name).casefold() for name in names}) == len(names)
    assert sum(file.slices for file in conversion.written) == 2 * len(hosts)


def test_a_run_cannot_take_the_place_of_a_folder_of_our_own() -> None:
    assert run_name("Kineto") == "Kineto_run"


def test_a_file_is_replaced_only_when_its_writer_ends_well(tmp_path: Path) -> None:
    path = tmp_path / "f"
    path.write_text("old")
    with pytest.raises(RuntimeError), replacing_file(path) as file:  # noqa: PT012
        file.write(b"half")
        raise RuntimeError
    assert path.read_text() == "old"
    with replacing_file(path) as file:
        file.write(b"new")
        assert path.read_text() == "old"
    assert path.read_text() == "new"
    assert leftovers(tmp_path) == []


def test_a_directory_is_replaced_only_when_its_writer_ends_well(tmp_path: Path) -> None:
    path = tmp_path / "d"
    path.mkdir()
    (path / "old").touch()
    with pytest.raises(KeyboardInterrupt), replacing_directory(path) as folder:  # noqa: PT012
        (folder / "new").touch()
        raise KeyboardInterrupt
    assert [p.name for p in path.iterdir()] == ["old"]
    with replacing_directory(path) as folder:
        (folder / "new").touch()
    assert [p.name for p in path.iterdir()] == ["new"]
    assert leftovers(tmp_path) == []


def test_a_result_that_appears_meanwhile_is_kept_without_force(tmp_path: Path) -> None:
    path = tmp_path / "f"
    with pytest.raises(NeuronTbError), replacing_file(path, force=False) as file:  # noqa: PT012
        file.write(b"mine")
        path.write_text("theirs")
    assert path.read_text() == "theirs"


def test_leftovers_of_dead_processes_are_removed_and_those_of_living_ones_are_not(
    tmp_path: Path,
) -> None:
    with replacing_file(tmp_path / "f") as file:
        file.write(b"x")
        mine = leftovers(tmp_path)
        dead = tmp_path / mine[0].name.replace(f"-{os.getpid()}-", "-4194999-")
        dead.mkdir()
        remove_leftovers(tmp_path)
        assert leftovers(tmp_path) == mine


_CONVERT = [sys.executable, "-m", "neuron_tb", "convert"]


def test_a_full_disk_gives_a_sentence_and_no_half_file(samples: Path, tmp_path: Path) -> None:
    def small_files() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (2000, 2000))

    done = subprocess.run(
        [*_CONVERT, samples / "rmsnorm" / "naive", "-o", tmp_path / "out", "--to", "perfetto"],
        capture_output=True,
        text=True,
        preexec_fn=small_files,
        check=False,
    )
    assert done.returncode == 1
    assert "cannot be written" in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
    assert [p for p in (tmp_path / "out").rglob("*") if p.is_file()] == []


def _state(out: Path) -> dict[str, bytes]:
    return {
        str(p.relative_to(out)): p.read_bytes()
        for p in out.rglob("*")
        if p.is_file() and not p.name.startswith(TEMPORARY) and TEMPORARY not in str(p.parent)
    }


_CAPTURES = ("naive", "compiled")


@pytest.fixture(scope="module")
def whole(samples: Path, tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, bytes]]:
    """The files of a conversion that nothing disturbed, for each capture."""
    found = []
    for name in _CAPTURES:
        reference = tmp_path_factory.mktemp(name)
        subprocess.run(
            [*_CONVERT, samples / "rmsnorm" / name, "-o", reference, "--run", "r"],
            check=True,
            capture_output=True,
        )
        found.append(_state(reference))
    return found


@pytest.mark.slow
def test_killed_at_any_moment_every_file_is_absent_old_or_new(
    samples: Path, tmp_path: Path, whole: list[dict[str, bytes]]
) -> None:
    """Two captures take turns under one run name, so old and new files differ."""
    sources = [samples / "rmsnorm" / name for name in _CAPTURES]
    out = tmp_path / "out"
    chance = random.Random(7)
    begin = time.monotonic()
    subprocess.run(
        [*_CONVERT, sources[0], "-o", out, "--run", "r"], check=True, capture_output=True
    )
    length = time.monotonic() - begin
    killed = 0
    for attempt in range(50):
        source = sources[attempt % 2]
        process = subprocess.Popen(
            [*_CONVERT, source, "-o", out, "--run", "r", "--force"],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        time.sleep(length * chance.uniform(0.3, 1.0))
        process.send_signal(signal.SIGKILL)
        killed += process.wait() == -signal.SIGKILL
        found = _state(out)
        for name, content in found.items():
            if name not in ("r.json", "r.json.unfinished"):
                assert content in [w.get(name) for w in whole], name
        if "r.json" in found:
            listed = json.loads(found["r.json"])["files"]
            assert all((out / f["path"]).stat().st_size == f["bytes"] for f in listed)
    assert killed >= 25
    subprocess.run(
        [*_CONVERT, sources[0], "-o", out, "--run", "r", "--force"], check=True, capture_output=True
    )
    assert leftovers(out) == []
    assert "r.json" in _state(out)


@pytest.mark.slow
def test_conversions_at_once_leave_whole_files(
    samples: Path, tmp_path: Path, whole: list[dict[str, bytes]]
) -> None:
    processes = [
        subprocess.Popen(
            [*_CONVERT, samples / "rmsnorm" / name, "-o", tmp_path, "--run", "r", "--force"],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        for name in ("naive", "compiled", "naive", "compiled")
    ]
    for process in processes:
        _, errors = process.communicate()
        assert "Traceback" not in errors
        assert process.returncode in (0, 1)
    assert leftovers(tmp_path) == []
    for name, content in _state(tmp_path).items():
        if name not in ("r.json", "r.json.unfinished"):
            assert content in [w.get(name) for w in whole], name
