"""The clocks of hosts against each other, on captures whose truth is known."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

import neuron_tb
from neuron_tb.converters.convert import convert
from neuron_tb.converters.model import Trace
from neuron_tb.converters.placing.host_clocks import BY_COLLECTIVES, Ends, host_clocks
from neuron_tb.converters.selection.filters import Filters
from tests import decoded
from tests.running.test_merge import assert_same
from tests.truth import Rank, Shape, make, write

SKEWS_NS = (10_000, 20_000, 250_000, -1_500_000, 3_000_000, 5_000_000_000)


def skewed(seed: int) -> tuple[list[Rank], dict[str, int]]:
    """Ranks of several hosts, and by how much each host's clock is ahead of the first one's."""
    draw = random.Random(seed)
    shape = Shape(
        ranks=draw.choice((2, 4, 8, 16)),
        ranks_per_host=draw.choice((1, 2, 4)),
        cores=draw.choice((1, 2)),
        steps=draw.choice((3, 5, 8)),
        operators=4,
        identified=draw.random() < 0.7,
    )
    ranks, hosts = make(seed, shape), dict[str, int]()
    for rank in ranks:
        skew = draw.choice((0, 1, -1)) * draw.choice(SKEWS_NS) if hosts else 0
        rank.framework_ns = rank.profile_ns = hosts.setdefault(rank.host, skew)
    return ranks, hosts


def ends_of_collectives(trace: Trace) -> list[list[int]]:
    """For every step the ends on all ranks."""
    rows = trace.slices.name == trace.strings.index("cc_running")
    of_rank = [
        sorted(trace.slices.end_ns[rows & (trace.slice_process == process)].tolist())
        for process in range(len(trace.processes))
    ]
    return [list(step) for step in zip(*of_rank, strict=True)]


def check(seed: int, folder: Path) -> None:
    ranks, hosts = skewed(seed)
    trace = neuron_tb.load(write(folder, ranks))
    found = [one for one in trace.alignments if one.method == BY_COLLECTIVES]
    assert len(found) == len(hosts) - 1
    for one in found:
        skew = hosts[one.clock.removeprefix("host ")]
        assert one.offset_ns is not None
        assert abs(one.offset_ns + skew) <= (one.bound_ns or 0) < 10_000, seed
        assert one.moved == (skew != 0), seed
    for ends in ends_of_collectives(trace):
        assert max(ends) - min(ends) < 10_000, seed


@pytest.mark.parametrize("seed", range(15))
def test_collectives_that_end_together_are_drawn_together(seed: int, tmp_path: Path) -> None:
    check(seed, tmp_path)


@pytest.mark.slow
def test_the_same_for_a_hundred_captures_and_64_ranks(tmp_path: Path) -> None:
    for seed in range(100, 200):
        check(seed, tmp_path / str(seed))
    ranks = make(1, Shape(ranks=64, ranks_per_host=16, operators=3))
    for rank in ranks[16:32]:
        rank.framework_ns = rank.profile_ns = -1_500_000
    trace = neuron_tb.load(write(tmp_path / "many", ranks))
    assert [one.moved for one in trace.alignments[-3:]] == [True, False, False]


@pytest.mark.parametrize("words", [{}, {"time": "0us:500us"}, {"steps": "6"}])
def test_ranks_converted_apart_are_moved_as_those_converted_together(
    words: dict[str, str], tmp_path: Path
) -> None:
    ranks = make(3, Shape(ranks=2, ranks_per_host=1))
    ranks[1].framework_ns = ranks[1].profile_ns = 3_000_000
    write(tmp_path / "in", ranks)
    filters = Filters.of(**words)
    together = convert(tmp_path / "in", out=tmp_path / "a", run="r", filters=filters)
    apart = convert(tmp_path / "in", out=tmp_path / "b", run="r", filters=filters, workers=2)
    for conversion in (together, apart):
        assert conversion.findings.of_kind("host_clock") == 1
    assert_same(decoded.run(tmp_path / "b", "r"), decoded.run(tmp_path / "a", "r"))


def test_without_alignment_hosts_stay_apart_and_a_finding_says_so(tmp_path: Path) -> None:
    ranks = make(3, Shape(ranks=2, ranks_per_host=1))
    ranks[1].framework_ns = ranks[1].profile_ns = 3_000_000
    trace = neuron_tb.load(write(tmp_path, ranks), align="none")
    assert trace.findings.of_kind("host_clock_left") == 1
    assert all(max(ends) - min(ends) > 2_900_000 for ends in ends_of_collectives(trace))


def ends(host: str, rank: int, times: dict[tuple[str, str, int], int]) -> Ends:
    return Ends(host, rank, times)


def test_operations_that_one_side_has_more_often_say_nothing() -> None:
    """The k-th of one side belongs to the k-th of the other, or nothing is claimed."""
    first = {("1", "", n): 1_000_000 * n for n in range(5)}
    second = {("1", "", n): 1_000_000 * (n + 1) for n in range(4)}
    (clock,) = host_clocks([ends("a", 0, first), ends("b", 1, second)])
    assert (clock.anchors, clock.fit) == (0, None)


def test_collectives_that_contradict_each_other_move_nothing() -> None:
    first = {(str(n), "", 0): 1_000_000 * n for n in range(40)}
    second = {(str(n), "", 0): 1_000_000 * n + n * n * 7_000_000 for n in range(40)}
    (clock,) = host_clocks([ends("a", 0, first), ends("b", 1, second)])
    assert (clock.anchors, clock.fit) == (40, None)
