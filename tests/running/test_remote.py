"""Sources and destinations that are URLs."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import neuron_tb
from neuron_tb.commands import main
from neuron_tb.converters.convert import convert
from neuron_tb.converters.errors import NeuronTbError
from neuron_tb.converters.running.merge import merge
from tests import decoded
from tests.cluster import write_cluster
from tests.makers import operator, step, write_kineto
from tests.running.test_merge import assert_same

fsspec = pytest.importorskip("fsspec")

EVENTS = [step(1, 0, 100), operator("aten::mul", 10, 50)]


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def memory() -> Iterator[Any]:
    """fsspec's file system in this process, empty."""
    system = fsspec.filesystem("memory")
    system.store.clear()
    yield system
    system.store.clear()


def put(system: Any, folder: Path, place: str) -> None:
    for path in folder.rglob("*"):
        if path.is_file():
            system.pipe_file(f"{place}/{path.relative_to(folder).as_posix()}", path.read_bytes())


def fetched(system: Any, place: str, folder: Path) -> Path:
    for path in system.find(place):
        local = folder / path[len(place) :].lstrip("/")
        local.parent.mkdir(parents=True, exist_ok=True)
        local.write_bytes(system.cat_file(path))
    return folder


def count_reads(system: Any, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    read: list[str] = []
    get_file = type(system).get_file

    def counting(self: Any, path: str, *args: Any, **more: Any) -> Any:
        read.append(path)
        return get_file(self, path, *args, **more)

    monkeypatch.setattr(type(system), "get_file", counting)
    return read


def test_a_capture_at_a_url_is_read_like_a_directory(memory: Any, samples: Path) -> None:
    put(memory, samples / "training", "/captures/training")
    trace = neuron_tb.load("memory://captures/training")
    own = neuron_tb.load(samples / "training")
    assert trace.name == own.name == "training"
    assert len(trace.slices) == len(own.slices)
    assert [p.host for p in trace.processes] == [p.host for p in own.processes]


def test_what_has_not_changed_is_not_fetched_again(
    memory: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("a", "b"):
        write_kineto(tmp_path / "c" / f"i-0_pid_{ord(name)}" / "trace.json", EVENTS)
    put(memory, tmp_path / "c", "/c")
    read = count_reads(memory, monkeypatch)
    neuron_tb.load("memory://c")
    assert len(read) == 2
    neuron_tb.load("memory://c")
    assert len(read) == 2
    memory.pipe_file("/c/i-0_pid_97/trace.json", memory.cat_file("/c/i-0_pid_98/trace.json"))
    neuron_tb.load("memory://c")
    assert read[2:] == ["/c/i-0_pid_97/trace.json"]


def test_a_file_that_is_gone_at_the_source_is_gone_in_the_copy(memory: Any, tmp_path: Path) -> None:
    for pid in (1, 2):
        write_kineto(tmp_path / "c" / f"i-0_pid_{pid}" / "trace.json", EVENTS)
    put(memory, tmp_path / "c", "/c")
    assert len(neuron_tb.load("memory://c").processes) == 2
    memory.rm("/c/i-0_pid_2", recursive=True)
    assert len(neuron_tb.load("memory://c").processes) == 1


def test_files_that_are_never_opened_are_named_but_not_fetched(
    memory: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))  # no neuron-explorer
    place = "/c/i-0_pid_1/100"
    memory.pipe_file(f"{place}/profile_nc_0_session_1.ntff", b"x" * 1000)
    path = write_kineto(tmp_path / "trace.json", EVENTS)
    memory.pipe_file(f"{place}/trace.json", path.read_bytes())
    read = count_reads(memory, monkeypatch)
    run = CliRunner().invoke(main, ["info", "memory://c"])
    assert run.exit_code == 0, run.output
    assert "profile_nc_0_session_1.ntff" in run.output
    assert read == [f"{place}/trace.json"]


def test_a_single_file_keeps_its_name(memory: Any, tmp_path: Path) -> None:
    path = write_kineto(tmp_path / "rank7_trace.json", EVENTS)
    memory.pipe_file("/c/rank7_trace.json", path.read_bytes())
    trace = neuron_tb.load("memory://c/rank7_trace.json")
    assert [process.rank for process in trace.processes] == [7]


def test_results_are_uploaded_with_the_list_last(
    memory: Any, samples: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    order: list[str] = []
    pipe_file, put_file = type(memory).pipe_file, type(memory).put_file

    def piping(self: Any, path: str, value: bytes, **more: Any) -> Any:
        order.append(path)
        return pipe_file(self, path, value, **more)

    def putting(self: Any, local: str, path: str, **more: Any) -> Any:
        order.append(path)
        return put_file(self, local, path, **more)

    monkeypatch.setattr(type(memory), "pipe_file", piping)
    monkeypatch.setattr(type(memory), "put_file", putting)
    conversion = convert(samples / "training", out="memory://logs/job", run="r")
    assert order[-1] == "/logs/job/r.json"
    places = [file.shown for file in conversion.written]
    assert "memory://logs/job/perfetto/r.pftrace" in places
    convert(samples / "training", out=tmp_path / "own", run="r")
    copy = fetched(memory, "/logs/job", tmp_path / "copy")
    assert_same(decoded.run(copy, "r"), decoded.run(tmp_path / "own", "r"))
    listed = {e["path"] for e in json.loads((copy / "r.json").read_text())["files"]}
    assert listed == {p.relative_to(copy).as_posix() for p in copy.rglob("*.*") if p.is_file()} - {
        "r.json"
    }


def test_an_uploaded_run_is_replaced_only_by_force_and_then_wholly(
    memory: Any, samples: Path, tmp_path: Path
) -> None:
    out = "memory://logs"
    convert(samples / "training", out=out, run="r")
    memory.pipe_file("/logs/plugins/profile/r/ALL_HOSTS.op_stats_v2.pb", b"stale")
    with pytest.raises(NeuronTbError, match="--force"):
        convert(samples / "rmsnorm" / "naive", out=out, run="r")
    assert len(memory.find("/logs/r")) == 2
    convert(samples / "rmsnorm" / "naive", out=out, run="r", force=True)
    assert len(memory.find("/logs/r")) == 1
    (profile,) = memory.find("/logs/plugins")
    assert profile.endswith(".xplane.pb")


def test_a_run_can_be_uploaded_in_parts(memory: Any, samples: Path) -> None:
    for target in ("perfetto", "kineto"):
        convert(samples / "training", out="memory://logs", run="r", to=target)
    listed = json.loads(memory.cat_file("/logs/r.json"))["files"]
    assert {entry["target"] for entry in listed} == {"perfetto", "kineto"}


def test_ranks_are_joined_from_and_to_urls(memory: Any, tmp_path: Path) -> None:
    root = tmp_path / "cluster"
    write_cluster(root)
    outs = []
    for number, directory in enumerate(sorted(root.iterdir())):
        outs.append(f"memory://results/{number}")
        convert(directory, out=outs[-1])
    (merged,) = merge(*outs, out="memory://merged", run="r")
    assert merged.written[0].shown.startswith("memory://merged/")
    convert(root, out=tmp_path / "own", run="r")
    copy = fetched(memory, "/merged", tmp_path / "copy")
    assert_same(decoded.run(copy, "r"), decoded.run(tmp_path / "own", "r"))


def test_file_urls_are_paths(tmp_path: Path) -> None:
    write_kineto(tmp_path / "my capture" / "trace.json", EVENTS)
    url = (tmp_path / "my capture").as_uri()
    convert(url, out=(tmp_path / "out").as_uri(), run="r", to="perfetto")
    assert (tmp_path / "out" / "perfetto" / "r.pftrace").is_file()


def test_what_is_not_there_is_said_in_a_sentence(memory: Any) -> None:
    run = CliRunner().invoke(main, ["summary", "memory://nothing/here"])
    assert run.exit_code == 1
    assert run.output == "neuron-tb: memory://nothing/here does not exist, or holds no file.\n"
    run = CliRunner().invoke(main, ["summary", "nosuchstore://x"])
    assert run.exit_code == 1
    assert "nosuchstore://x cannot be read: Protocol not known" in run.output


def test_a_missing_package_is_named_with_its_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "fsspec.core", None)
    run = CliRunner().invoke(main, ["summary", "s3://bucket/capture"])
    assert run.exit_code == 1
    assert "pip install 'neuron-tb[remote]'" in run.output


def test_names_that_leave_the_folder_are_refused(memory: Any, tmp_path: Path) -> None:
    memory.pipe_file("/c/a/trace.json", b"{}")
    memory.store["/c/../evil.json"] = memory.store["/c/a/trace.json"]
    with pytest.raises(NeuronTbError, match="leaves the folder"):
        neuron_tb.load("memory://c")
    assert not list(tmp_path.rglob("evil.json"))


@pytest.fixture(scope="module")
def bucket() -> Iterator[str]:
    """An S3 server on this machine."""
    server_module = pytest.importorskip("moto.server")
    s3fs = pytest.importorskip("s3fs")
    server = server_module.ThreadedMotoServer(ip_address="127.0.0.1", port=0)
    server.start()
    host, port = server.get_host_and_port()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AWS_ENDPOINT_URL", f"http://{host}:{port}")
        patch.setenv("AWS_ACCESS_KEY_ID", "test")
        patch.setenv("AWS_SECRET_ACCESS_KEY", "test")
        patch.setenv("AWS_DEFAULT_REGION", "us-east-1")
        patch.setenv("NO_PROXY", "127.0.0.1")
        s3fs.S3FileSystem.clear_instance_cache()
        s3fs.S3FileSystem().mkdir("profiles")
        yield "profiles"
        s3fs.S3FileSystem.clear_instance_cache()
    server.stop()


@pytest.mark.slow
def test_captures_and_results_in_s3(bucket: str, tmp_path: Path) -> None:
    import s3fs

    root = tmp_path / "cluster"
    write_cluster(root)
    system = s3fs.S3FileSystem()
    put(system, root, f"{bucket}/captures/job")
    source, out = f"s3://{bucket}/captures/job", f"s3://{bucket}/logs"
    run = CliRunner().invoke(main, ["convert", source, "-o", out, "--run", "r", "--workers", "2"])
    assert run.exit_code == 0, run.output
    assert f"{out}/perfetto/r.pftrace" in run.output
    convert(root, out=tmp_path / "own", run="r")
    system.invalidate_cache()
    copy = fetched(system, f"{bucket}/logs", tmp_path / "copy")
    assert_same(decoded.run(copy, "r"), decoded.run(tmp_path / "own", "r"))
    run = CliRunner().invoke(main, ["convert", source, "-o", out, "--run", "r"])
    assert run.exit_code == 1
    assert "add --force" in run.output
    run = CliRunner().invoke(main, ["summary", source, "--steps", "4"])
    assert run.exit_code == 0, run.output
    assert "aten::mul" in run.output
    run = CliRunner().invoke(main, ["summary", "s3://no-such-bucket/x"])
    assert run.exit_code == 1
    assert run.output.startswith("neuron-tb: s3://no-such-bucket/x ")
