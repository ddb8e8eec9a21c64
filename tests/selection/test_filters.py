"""Parts of a capture: ranks, cores, steps, time, kinds of events."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

import neuron_tb
from neuron_tb.commands import main
from neuron_tb.converters.convert import convert
from neuron_tb.converters.errors import NeuronTbError, NothingLeftError
from neuron_tb.converters.model import NONE, LinkKind, Role, Trace
from neuron_tb.converters.selection.filters import Filters
from tests import decoded
from tests.cluster import write_cluster
from tests.running.test_merge import assert_same


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("cluster")
    write_cluster(root, steps=(3, 4, 5))
    return root


def names(trace: Trace, *roles: Role) -> list[str]:
    rows = trace.roles(*roles)
    return sorted({trace.strings[n] for n in trace.slices.name[rows].tolist()})


def filtered(source: Path, **words: str) -> Trace:
    return neuron_tb.load(source, filters=Filters.of(**words))


def test_without_words_nothing_is_filtered(cluster: Path) -> None:
    assert not Filters.of()
    trace = filtered(cluster)
    assert trace.filtered == ""
    assert len(trace.slices) == len(neuron_tb.load(cluster).slices)


def test_ranks_that_are_not_wanted_are_not_even_read(cluster: Path) -> None:
    trace = filtered(cluster, ranks="0,2-3")
    assert [process.rank for process in trace.processes] == [0, 2, 3]
    assert len(trace.sources) == 6
    whole = neuron_tb.load(cluster)
    wanted = np.isin(whole.slice_process, [0, 2, 3])
    assert len(trace.slices) == np.count_nonzero(wanted)


def test_rank_and_unknown_rank_in_one_file(tmp_path: Path, samples: Path) -> None:
    """A system profile shared by two ranks is read and then taken apart."""
    trace = filtered(samples / "training", ranks="1")
    assert [process.rank for process in trace.processes] == [1]
    both = neuron_tb.load(samples / "training")
    own = both.executions.device == [d.process for d in both.devices].index(1)
    assert len(trace.executions) == np.count_nonzero(own)
    assert trace.executions.duration_ns.sum() == both.executions.duration_ns[own].sum()


def test_a_step_keeps_what_was_launched_in_it_with_all_its_links(cluster: Path) -> None:
    whole, trace = neuron_tb.load(cluster), filtered(cluster, steps="4")
    assert trace.steps.number.tolist() == [4] * 4
    assert names(trace, Role.ANNOTATION) == ["ProfilerStep#4"]
    in_step = whole.steps.number[whole.executions.step] == 4
    in_step &= whole.executions.step != NONE
    before, after = whole.executions.take(in_step), trace.executions
    assert sorted(before.duration_ns.tolist()) == sorted(after.duration_ns.tolist())
    assert (after.operator != NONE).all()
    assert (trace.slices.role[after.operator] == Role.OPERATOR).all()
    assert (trace.slices.role[after.launch] == Role.RUNTIME).all()
    assert after.operator_link.tolist().count(LinkKind.NONE) == 0
    assert (trace.steps.number[after.step] == 4).all()
    assert trace.filtered == f"--steps 4: {len(trace.slices):,} of {len(whole.slices):,} slices"


@pytest.mark.parametrize(
    ("text", "numbers"), [("4:5", {4, 5}), ("4:", {4, 5}), (":4", {3, 4}), ("3", {3})]
)
def test_ranges_of_steps_include_both_ends(cluster: Path, text: str, numbers: set[int]) -> None:
    assert set(filtered(cluster, steps=text).steps.number.tolist()) == numbers


def test_a_range_of_time_keeps_whole_slices_that_reach_into_it(cluster: Path) -> None:
    whole = neuron_tb.load(cluster)
    trace = filtered(cluster, time="1ms:1.5ms")
    zero = whole.time_range()[0]
    first, last = zero + 1_000_000, zero + 1_500_000
    inside = (whole.slices.start_ns < last) & (whole.slices.end_ns > first)
    inside &= whole.slices.role != Role.SPAN
    lengths = sorted(trace.slices.duration_ns.tolist())
    # An execution stays with the rows of both its physical cores.
    assert set(whole.slices.duration_ns[inside].tolist()) <= set(lengths)
    assert len(lengths) - np.count_nonzero(inside) < 5
    assert (trace.instants.time_ns >= first).all()
    assert (trace.instants.time_ns < last).all()


@pytest.mark.parametrize("time", [":999999999999999999s", "0ns:999999999999999999s"])
def test_a_time_beyond_all_clocks_is_the_end(cluster: Path, time: str) -> None:
    assert len(filtered(cluster, time=time).executions) == len(neuron_tb.load(cluster).executions)


def test_neurons_own_filter_words(cluster: Path) -> None:
    hardware = ["cc_exec_barrier", "cc_running", "nc_exec_running"]
    device = (Role.KERNEL, Role.DEVICE_DETAIL)
    trace = filtered(cluster, events="hardware")
    assert names(trace, *device) == hardware
    assert "nrta_execute_schedule" not in names(trace, Role.RUNTIME)
    assert "aten::mul" in names(trace, Role.OPERATOR)
    # The operator was found through calls that are not shown.
    assert (trace.executions.operator != NONE).all()
    trace = filtered(cluster, events="nrta_execute_schedule,hardware,^cc_running")
    assert names(trace, *device) == ["cc_exec_barrier", "nc_exec_running"]
    assert "nrta_execute_schedule" in names(trace, Role.RUNTIME)
    assert "kbl_exec_wait" not in names(trace, Role.RUNTIME)
    trace = filtered(cluster, events="device_exec,^framework")
    assert names(trace, *Role) == ["nc_exec_running"]
    trace = filtered(cluster, events="^hardware")
    assert names(trace, *device) == []
    assert "kbl_exec_wait" in names(trace, Role.RUNTIME)


def test_cores_are_counted_inside_their_process(samples: Path, cluster: Path) -> None:
    assert len(filtered(cluster, cores="0").executions)
    trace = filtered(cluster, cores="1-7")
    assert len(trace.executions) == 0
    assert names(trace, Role.OPERATOR)
    assert (trace.memory.device_type == 0).all()


@pytest.mark.parametrize(
    "words",
    [
        {"ranks": "a"},
        {"ranks": "5-3"},
        {"cores": ""},
        {"steps": "x:"},
        {"steps": "5:2"},
        {"time": "10:20ms"},
        {"time": ":"},
        {"time": "2ms:1ms"},
        {"time": "1ms"},
        {"events": "nrt execute"},
        {"events": ""},
        *({"time": text} for text in (":", "nan:", "1e9s:", "-1ms:", "5:3", "9" * 400 + "s:")),
        *({"steps": text} for text in (":", "5:2", "-3:", "²", "9" * 400)),
        *({"ranks": text} for text in ("-1", "5-1", "0,,1", "0-99999999999", "9" * 5000)),
        *({"events": text} for text in ("", "^", ",", "a b")),
    ],
)
def test_words_that_mean_nothing_are_refused_in_a_sentence(words: dict[str, str]) -> None:
    with pytest.raises(NeuronTbError, match=f"--{next(iter(words))}"):
        Filters.of(**words)


def test_a_filter_that_leaves_nothing_says_what_there_is(cluster: Path) -> None:
    with pytest.raises(NothingLeftError, match=r"--steps 9: .*steps 3-5"):
        filtered(cluster, steps="9")
    with pytest.raises(NeuronTbError):
        filtered(cluster, ranks="17")


@pytest.mark.parametrize("words", [{"steps": "4"}, {"ranks": "1-2"}, {"time": "1ms:2ms"}])
def test_filters_do_the_same_rank_by_rank(
    cluster: Path, tmp_path: Path, words: dict[str, str]
) -> None:
    filters = Filters.of(**words)
    convert(cluster, out=tmp_path / "a", run="r", filters=filters)
    conversion = convert(cluster, out=tmp_path / "b", run="r", filters=filters, workers=2)
    assert_same(decoded.run(tmp_path / "b", "r"), decoded.run(tmp_path / "a", "r"))
    assert conversion.filtered.startswith(str(filters))
    assert not conversion.findings.of_kind("rank_failed")


def test_ranks_outside_the_range_of_time_are_no_failures(tmp_path: Path) -> None:
    root = tmp_path / "cluster"
    write_cluster(root, hosts=2, ranks_per_host=1, skew_ns=10_000_000_000)
    filters = Filters.of(time="0ms:1s")
    conversion = convert(root, out=tmp_path / "out", filters=filters, workers=2)
    assert conversion.failed == []
    assert len([f for f in conversion.written if f.target == "kineto"]) == 1


def test_every_command_says_that_its_totals_are_of_a_part(cluster: Path, tmp_path: Path) -> None:
    for command in (["summary"], ["info"], ["compare"]):
        arguments = [*command, str(cluster), "--steps", "4"]
        run = CliRunner().invoke(main, arguments)
        assert run.exit_code == 0, run.output
        assert "Filtered" in run.output
        assert "totals are those of this part" in run.output
        document = json.loads(CliRunner().invoke(main, [*arguments, "--format", "json"]).stdout)
        assert "--steps 4: " in str(document["filtered"])
    out = str(tmp_path / "out")
    run = CliRunner().invoke(main, ["convert", str(cluster), "-o", out, "--ranks", "0", "--strict"])
    assert run.exit_code == 0, run.output  # a wanted part is no fault
    assert "Filtered (--ranks 0: " in run.output
    assert CliRunner().invoke(main, ["summary", str(cluster), "--steps", "x"]).exit_code == 2
