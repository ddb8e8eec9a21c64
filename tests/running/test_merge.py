"""Ranks converted apart and joined give the run of converting them together."""

from __future__ import annotations

import gzip
import json
import shutil
import sys
from collections.abc import Iterator
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import neuron_tb
from neuron_tb.commands import main
from neuron_tb.converters.convert import convert
from neuron_tb.converters.errors import NeuronTbError
from neuron_tb.converters.joining import Part
from neuron_tb.converters.links import link
from neuron_tb.converters.model import Trace
from neuron_tb.converters.running.merge import merge
from neuron_tb.converters.running.unit import write_all
from neuron_tb.converters.writers import Destination
from neuron_tb.converters.writers.targets import TARGETS
from tests import decoded
from tests.cluster import write_cluster
from tests.makers import BASE_NS, complete, kernel, launch, operator, step, write_kineto

RUN = "job"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("cluster")
    write_cluster(root)
    return root


@pytest.fixture(scope="module")
def together(cluster: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The run of one process that reads everything."""
    out = tmp_path_factory.mktemp("together")
    convert(cluster, out=out, run=RUN)
    return decoded.run(out, RUN)


def apart(cluster: Path, out: Path) -> list[Path]:
    """Each rank's own result."""
    outs = []
    for number, directory in enumerate(sorted(cluster.iterdir())):
        outs.append(out / f"rank{number}")
        convert(directory, out=outs[-1])
    return outs


def differences(a: Any, b: Any, place: str = "") -> Iterator[str]:
    if isinstance(a, dict) and isinstance(b, dict):
        for key in sorted({*a, *b}, key=str):
            if key not in a or key not in b:
                yield f"{place}/{key}: only in the {'first' if key in a else 'second'}"
            else:
                yield from differences(a[key], b[key], f"{place}/{key}")
    elif a != b:
        yield f"{place}: {a!r:.300} != {b!r:.300}"


def assert_same(a: dict[str, Any], b: dict[str, Any]) -> None:
    found = list(differences(a, b))
    assert not found, "\n".join(found[:20])


def test_ranks_in_processes_of_their_own_give_the_same_run(
    cluster: Path, together: dict[str, Any], tmp_path: Path
) -> None:
    conversion = convert(cluster, out=tmp_path, run=RUN, workers=2)
    assert_same(decoded.run(tmp_path, RUN), together)
    assert conversion.failed == []
    assert not [p for p in tmp_path.iterdir() if p.name.startswith(".neuron-tb-")]


def test_ranks_merged_later_give_the_same_run(
    cluster: Path, together: dict[str, Any], tmp_path: Path
) -> None:
    (merged,) = merge(*apart(cluster, tmp_path), out=tmp_path / "merged", run=RUN)
    assert merged.run == RUN
    assert_same(decoded.run(tmp_path / "merged", RUN), together)


def test_a_merged_run_can_be_merged_again(
    cluster: Path, together: dict[str, Any], tmp_path: Path
) -> None:
    outs = apart(cluster, tmp_path)
    merge(*outs[:2], out=tmp_path / "a", run=RUN)
    merge(*outs[2:], out=tmp_path / "b", run=RUN)
    merge(tmp_path / "b", tmp_path / "a", out=tmp_path / "merged", run=RUN)
    assert_same(decoded.run(tmp_path / "merged", RUN), together)


def test_a_rank_that_fails_leaves_the_others_and_is_named(cluster: Path, tmp_path: Path) -> None:
    root = tmp_path / "broken"
    write_cluster(root)
    (victim,) = root.glob("i-0cluster000001_pid_500/*/trace.json")
    victim.write_text('{"traceEvents": [{"ph": "X"')
    next(victim.parent.glob("system_profile.json")).write_text("{")
    conversion = convert(root, out=tmp_path / "out", run=RUN, workers=2)
    (failed,) = conversion.failed
    assert "i-0cluster000001_pid_500" in failed
    assert conversion.findings.of_kind("rank_failed") == 1
    names = {path.name for path in (tmp_path / "out" / "kineto" / RUN).iterdir()}
    assert names == {f"rank{n}.trace.json.gz" for n in (0, 1, 3)}


def test_a_process_that_dies_loses_only_its_rank(
    cluster: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(_with_a_deadly_rank(tmp_path)))
    conversion = convert(cluster, out=tmp_path / "out", run=RUN, workers=1)
    (failed,) = conversion.failed
    assert failed.startswith("rank 2")
    (finding,) = [f for f in conversion.findings if f.kind == "rank_failed"]
    assert "killed, probably because memory ran out" in finding.message
    assert len(list((tmp_path / "out" / "kineto" / RUN).iterdir())) == 3


def _with_a_deadly_rank(folder: Path) -> Path:
    """A directory for PYTHONPATH that makes every new Python die while it reads rank 2."""
    (folder / "path").mkdir()
    (folder / "path" / "sitecustomize.py").write_text(
        "import os, signal, sys\n"
        "def hook(event, args):\n"
        "    if event == 'open' and 'i-0cluster000001_pid_500' in str(args[0]):\n"
        "        os.kill(os.getpid(), signal.SIGKILL)\n"
        "sys.addaudithook(hook)\n"
    )
    return folder / "path"


def test_when_all_ranks_fail_nothing_is_written_and_the_first_reason_is_told(
    tmp_path: Path,
) -> None:
    root = tmp_path / "broken"
    write_cluster(root, hosts=1)
    for path in root.rglob("*.json"):
        path.write_text('{"a": 1}')
    for path in root.rglob("system_profile.json"):
        path.unlink()
    with pytest.raises(NeuronTbError):
        convert(root, out=tmp_path / "out", workers=2)
    assert list((tmp_path / "out").iterdir()) == []


def test_ranks_that_no_file_tells_are_given_by_order(tmp_path: Path) -> None:
    root = tmp_path / "unranked"
    write_cluster(root)
    for path in root.rglob("trace.json"):
        path.write_text(path.read_text().replace('"rank":', '"position":'))
    convert(root, out=tmp_path / "together", run=RUN)
    convert(root, out=tmp_path / "apart", run=RUN, workers=2)
    assert_same(decoded.run(tmp_path / "apart", RUN), decoded.run(tmp_path / "together", RUN))
    assert len(list((tmp_path / "apart" / "kineto" / RUN).iterdir())) == 4


def test_hta_gets_all_ranks_on_one_base_time(tmp_path: Path) -> None:
    files = []
    for rank in range(2):
        events = [step(3, 0, 100), operator("aten::mul", 10, 20)]
        base = BASE_NS + 5_000_000_123 * rank
        head = {"distributedInfo": {"rank": rank, "world_size": 2}, "baseTimeNanoseconds": base}
        files.append(write_kineto(tmp_path / f"rank{rank}.json", events, **head))
    convert(*files, out=tmp_path / "out", run=RUN, workers=2)
    bases, first = [], []
    for rank in range(2):
        path = tmp_path / "out" / "kineto" / RUN / f"rank{rank}.trace.json.gz"
        document = json.loads(gzip.decompress(path.read_bytes()))
        bases.append(document["baseTimeNanoseconds"])
        first.append(min(e["ts"] for e in document["traceEvents"] if e["ph"] == "X"))
    assert bases == [BASE_NS, BASE_NS]
    assert first == [0.0, 5_000_000.123]


def test_one_process_cannot_be_joined_twice(cluster: Path, tmp_path: Path) -> None:
    directory = sorted(cluster.iterdir())[0]
    for name in "ab":
        convert(directory, out=tmp_path / name, to="perfetto")
    with pytest.raises(NeuronTbError, match="hold the same process"):
        merge(tmp_path / "a", tmp_path / "b", out=tmp_path / "merged")
    assert not list((tmp_path / "merged").rglob("*.pftrace"))
    assert not list((tmp_path / "merged").glob("*.json"))


def test_what_neuron_tb_did_not_write_is_refused_by_name(tmp_path: Path) -> None:
    path = tmp_path / "a" / "plugins" / "profile" / "r" / "host.xplane.pb"
    path.parent.mkdir(parents=True)
    path.write_bytes(b"\x0a\x04\x12\x02ab")
    with pytest.raises(NeuronTbError, match=r"host\.xplane\.pb was not written by this version"):
        merge(tmp_path / "a", out=tmp_path / "merged")
    with pytest.raises(NeuronTbError, match="holds no result"):
        merge(tmp_path / "merged", out=tmp_path / "again")
    with pytest.raises(NeuronTbError, match="is no folder of results"):
        merge(tmp_path / "nowhere", out=tmp_path / "again")


@pytest.fixture(scope="module")
def one_rank(cluster: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("one")
    convert(sorted(cluster.iterdir())[0], out=out, run="r")
    return out


def with_list(one_rank: Path, out: Path, **changed: Any) -> Path:
    """A copy of a rank's results whose list says something else."""
    shutil.copytree(one_rank, out)
    listing = json.loads((out / "r.json").read_text())
    (out / "r.json").write_text(json.dumps({**listing, **changed}))
    return out


@pytest.mark.parametrize(
    "name", ["../evil", "/evil", "..", "", "a\0b", "a\nb", "x" * 300, "plugins"]
)
@pytest.mark.parametrize("given_by", ["user", "list"])
def test_a_joined_run_cannot_leave_the_folder(
    one_rank: Path, tmp_path: Path, name: str, given_by: str
) -> None:
    out = tmp_path / "deep" / "out"
    part = with_list(one_rank, tmp_path / "part", run=name)
    before = {p for p in tmp_path.rglob("*") if p.is_file()}
    (merged,) = merge(part, out=out, run=name if given_by == "user" else None, force=True)
    assert (out / f"{merged.run}.json").parent == out
    assert all(
        out in file.path.parents and ".." not in file.path.parts
        for file in merged.written
        if file.path
    )
    outside = {p for p in tmp_path.rglob("*") if p.is_file() and out not in p.parents}
    assert outside == before


@pytest.mark.parametrize(
    "changed",
    [
        {"files": None},
        {"files": 5},
        {"files": [5, {}]},
        {"files": [{"path": 5, "target": "xprof"}]},
        {"files": [{"path": "/etc/passwd", "target": "perfetto"}]},
        {"files": [{"path": "../part/perfetto/r.pftrace", "target": "perfetto"}]},
        {"findings": 5},
        {"findings": [{"kind": [], "count": "x", "message": None}]},
        {"sources": [5, None]},
        {"run": None},
    ],
)
def test_a_list_that_is_none_is_not_believed(
    one_rank: Path, tmp_path: Path, samples: Path, changed: dict[str, Any]
) -> None:
    """The files beside it are found by their places; a conversion does not replace it."""
    part = with_list(one_rank, tmp_path / "part", **changed)
    (merged,) = merge(part, out=tmp_path / "merged")
    assert {file.target for file in merged.written} == set(TARGETS)
    with pytest.raises(NeuronTbError, match="no list of a run's files"):
        convert(samples / "rmsnorm" / "naive", out=part, run="r", to="kineto", force=True)


def test_a_list_that_is_not_text_is_not_believed(one_rank: Path, tmp_path: Path) -> None:
    """Also where the bytes stand in a key that no list has."""
    part = with_list(one_rank, tmp_path / "part", unknown="?")
    listing = part / "r.json"
    listing.write_bytes(listing.read_bytes().replace(b"unknown", b"\xff"))
    (merged,) = merge(part, out=tmp_path / "merged")
    assert {file.target for file in merged.written} == set(TARGETS)


def test_a_file_that_is_shorter_than_listed_is_refused(one_rank: Path, tmp_path: Path) -> None:
    """Its last packet would swallow the beginning of the next rank's."""
    part = with_list(one_rank, tmp_path / "part")
    trace = part / "perfetto" / "r.pftrace"
    trace.write_bytes(trace.read_bytes()[:-3])
    with pytest.raises(NeuronTbError, match=r"r\.pftrace has [\d,]+ bytes, not the"):
        merge(part, out=tmp_path / "merged")
    (part / "r.json").unlink()
    with pytest.raises(NeuronTbError, match=r"r\.pftrace is damaged"):
        merge(part, out=tmp_path / "merged")


def test_what_the_drop_in_profiler_wrote_becomes_one_file_per_host(
    cluster: Path, together: dict[str, Any], tmp_path: Path
) -> None:
    """Its ranks write into one folder, under names of their own and without a list."""
    out = tmp_path / "logs"
    for rank, directory in enumerate(sorted(cluster.iterdir())):
        convert(directory, out=tmp_path / f"{rank}", run=RUN, local_rank=rank % 2)
        (profile,) = (tmp_path / f"{rank}").rglob("*.xplane.pb")
        assert f"/device:TPU:{rank % 2}" in decoded.xplane(profile)["planes"]
        for path in [p for p in (tmp_path / f"{rank}").rglob("*") if p.is_file()]:
            place = out / path.relative_to(tmp_path / f"{rank}")
            if place.parent == out:
                continue
            name = place.name
            if name.endswith(".xplane.pb"):
                name = f"{name.removesuffix('.xplane.pb')}-rank{rank}.xplane.pb"
            elif name.endswith(".pftrace"):
                name = f"{name.removesuffix('.pftrace')}-rank{rank}.pftrace"
            elif name.endswith(".pt.trace.json.gz"):
                worker, dot, rest = name.partition(".")
                name = f"{worker}_rank{rank}{dot}{rest}"
            place.parent.mkdir(parents=True, exist_ok=True)
            path.rename(place.with_name(name))
    (merged,) = merge(out, out=tmp_path / "merged")
    assert merged.run == RUN
    assert_same(decoded.run(tmp_path / "merged", RUN), together)


def test_runs_of_one_name_are_joined_where_folders_hold_several(
    cluster: Path, tmp_path: Path
) -> None:
    outs = [tmp_path / "a", tmp_path / "b"]
    for out, directory in zip(outs, sorted(cluster.iterdir()), strict=False):
        for window in ("steps0-2", "steps5-7"):
            convert(directory, out=out, run=window, to="perfetto")
    runs = merge(*outs, out=tmp_path / "merged")
    assert [merged.run for merged in runs] == ["steps0-2", "steps5-7"]
    with pytest.raises(NeuronTbError, match="--run can name one"):
        merge(*outs, out=tmp_path / "other", run="x")


def test_an_existing_run_is_replaced_only_by_force(cluster: Path, tmp_path: Path) -> None:
    convert(cluster, out=tmp_path, run=RUN, workers=2)
    before = (tmp_path / f"{RUN}.json").read_bytes()
    with pytest.raises(NeuronTbError, match="--force"):
        convert(cluster, out=tmp_path, run=RUN, workers=2)
    assert (tmp_path / f"{RUN}.json").read_bytes() == before
    convert(cluster, out=tmp_path, run=RUN, workers=2, force=True)


def test_the_command_joins_and_says_what_is_next(cluster: Path, tmp_path: Path) -> None:
    outs = [str(out) for out in apart(cluster, tmp_path)]
    run = CliRunner().invoke(main, ["merge", *outs, "-o", str(tmp_path / "merged")])
    assert run.exit_code == 0, run.output
    assert "i-0cluster000000.xplane.pb" in run.output
    assert f"neuron-tb check {tmp_path / 'merged'}" in run.output


@pytest.mark.slow
def test_the_viewers_own_code_opens_a_merged_run(cluster: Path, tmp_path: Path) -> None:
    merge(*apart(cluster, tmp_path), out=tmp_path / "merged")
    report = CliRunner().invoke(main, ["check", str(tmp_path / "merged")])
    assert report.exit_code == 0, report.output


@pytest.mark.slow
def test_a_ray_cluster_gives_the_same_run(
    cluster: Path, together: dict[str, Any], tmp_path: Path
) -> None:
    pytest.importorskip("ray")
    conversion = convert(cluster, out=tmp_path, run=RUN, engine="ray")
    assert_same(decoded.run(tmp_path, RUN), together)
    assert conversion.failed == []


def test_without_ray_a_sentence_tells_how_to_get_it(
    cluster: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(NeuronTbError, match=r"pip install 'neuron-tb\[ray\]'"):
        convert(cluster, out=tmp_path, engine="ray")
    with pytest.raises(NeuronTbError, match="there is no engine"):
        convert(cluster, out=tmp_path, engine="spark")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("later_ns", [1_234_567_891, -987_654_321, 400, -(10**18) - 7])
def test_a_rank_can_be_moved_in_time_while_it_is_joined(
    cluster: Path, tmp_path: Path, later_ns: int
) -> None:
    """As if its clock had been right when it was recorded."""
    first, second = sorted(cluster.iterdir())[:2]
    convert(first, out=tmp_path / "a", run=RUN)
    convert(second, out=tmp_path / "b", run=RUN)
    trace = link(moved(neuron_tb.load(second), later_ns))
    write_all(trace, Destination(tmp_path / "c", RUN), list(TARGETS))
    for name, parts in (("moved", ("a", "b")), ("expected", ("a", "c"))):
        for target in TARGETS.values():
            files = [
                Part(path, later_ns=later_ns if part == "b" else 0)
                for part in parts
                for path in sorted((tmp_path / part).rglob("*"))
                if path.is_file() and target.path(tmp_path / part, RUN) in (path, path.parent)
            ]
            joiner = import_module(target.joiner).join
            assert joiner(files, Destination(tmp_path / name, RUN))
    expected = decoded.run(tmp_path / "expected", RUN)
    if later_ns < -(10**18):
        # XProf ends after 106 days.
        expected = {k: v for k, v in expected.items() if "xplane" not in k}
    actual = {k: v for k, v in decoded.run(tmp_path / "moved", RUN).items() if k in expected}
    assert_same(actual, expected)


def moved(trace: Trace, later_ns: int) -> Trace:
    return replace(
        trace,
        slices=replace(trace.slices, start_ns=trace.slices.start_ns + later_ns),
        instants=replace(trace.instants, time_ns=trace.instants.time_ns + later_ns),
        counters=replace(trace.counters, time_ns=trace.counters.time_ns + later_ns),
        memory=replace(trace.memory, time_ns=trace.memory.time_ns + later_ns),
    )


@pytest.mark.slow
@settings(max_examples=12, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    ranks=st.lists(
        st.tuples(
            st.integers(0, 1),  # host
            st.lists(  # start, length, correlation
                st.tuples(st.integers(0, 500), st.integers(0, 90), st.integers(1, 5)), max_size=8
            ),
        ),
        min_size=2,
        max_size=4,
    )
)
def test_splitting_into_ranks_and_joining_changes_nothing(
    ranks: list[tuple[int, list[tuple[int, int, int]]]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    root = tmp_path_factory.mktemp("ranks")
    on_host = [0, 0]
    for rank, (host, rows) in enumerate(ranks):
        pid = 40 + on_host[host]
        on_host[host] += 1
        events = [step(1, 0, 1000), operator("aten::mm", 5, 900)]
        for start, length, correlation in rows:
            events.append(launch(10 + start, 1, correlation))
            events.append(kernel(f"k{correlation}", 20 + start, length, correlation))
            events.append(complete("python_function", "f.py(1): g", start, length, tid=9))
        place = root / "captures" / f"host{host}_pid_{pid}" / "trace.json"
        write_kineto(place, events, distributedInfo={"rank": rank, "world_size": len(ranks)})
    convert(root / "captures", out=root / "together", run=RUN)
    outs = []
    for number, directory in enumerate(sorted((root / "captures").iterdir())):
        outs.append(root / f"{number}")
        convert(directory, out=outs[-1])
    merge(*reversed(outs), out=root / "merged", run=RUN)
    assert_same(decoded.run(root / "merged", RUN), decoded.run(root / "together", RUN))


def test_a_rank_without_steps_hides_those_of_the_others_in_xprof_and_that_is_said(
    tmp_path: Path,
) -> None:
    for rank, marks in enumerate(([step(1, 0, 90), step(2, 100, 90)], [])):
        work = [operator("aten::mm", 5, 60), launch(10, 2, 1), kernel("k", 20, 9, 1)]
        place = tmp_path / "captures" / f"host_pid_{40 + rank}" / "trace.json"
        write_kineto(place, [*marks, *work], distributedInfo={"rank": rank})
    conversion = convert(tmp_path / "captures", out=tmp_path / "out", run=RUN, workers=2)
    assert conversion.findings.of_kind("steps_not_listed") == 2
