"""The clock of a system profile against that of its trace, on captures whose truth is known."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

import neuron_tb
from neuron_tb.commands import main
from neuron_tb.converters.convert import convert
from neuron_tb.converters.errors import WrongUseError
from neuron_tb.converters.model import NONE, Source, Trace
from neuron_tb.converters.placing.align import Align
from neuron_tb.converters.placing.feasible import fit
from neuron_tb.converters.placing.profile_clock import BY_CALLS
from tests.truth import Rank, Shape, among, make, write

OFFSETS_NS = (10_000, 30_500, 250_000, 5_000_000, 1_000_000_000, 5_000_000_000)

Row = tuple[int | None, int, int, str, int]
"""Rank, core, step, operator and length of an execution."""


def found_rows(trace: Trace, lengths: bool = True) -> list[Row]:
    """Everything measured; step NONE and operator "" where they are not known."""
    work = trace.executions.take(trace.executions.source == Source.MEASURED)
    rows = []
    for row in range(len(work)):
        device = trace.devices[work.device[row]]
        operator, step = work.operator[row], work.step[row]
        name = "" if operator == NONE else trace.strings[trace.slices.name[operator]]
        number = NONE if step == NONE else int(trace.steps.number[step])
        length = int(work.duration_ns[row]) if lengths else 0
        rows.append((trace.processes[device.process].rank, device.index, number, name, length))
    return sorted(rows)


def true_rows(ranks: list[Rank], lengths: bool = True) -> list[Row]:
    return sorted(
        (one.rank, one.core, one.step, one.operator, one.length_ns if lengths else 0)
        for one in among(ranks, lambda one: True)
    )


def a_capture(seed: int) -> list[Rank]:
    """A capture of any shape, whose profiles are off by anything, or not at all."""
    draw = random.Random(seed)
    shape = Shape(
        ranks=draw.choice((1, 1, 2, 4)),
        cores=draw.choice((1, 2, 3)),
        lnc2=bool(draw.randrange(2)),
        steps=draw.choice((2, 3, 6)),
        operators=draw.choice((8, 20)),
        identified=draw.random() < 0.6,
    )
    ranks = make(seed, shape)
    for rank in ranks:
        rank.profile_ns = draw.choice((0, 1, -1)) * draw.choice(OFFSETS_NS)
        rank.drift_ppm = draw.choice((0, 0, 15, -50, 50))
        rank.jitter_ns = draw.choice((0, 0, 3_000))
    return ranks


def check(seed: int, folder: Path) -> int:
    """How many offsets were not found; all that were are right, and so is every operator."""
    ranks = a_capture(seed)
    trace = neuron_tb.load(write(folder, ranks))
    assert len(trace.alignments) == len(ranks)
    refused = 0
    for rank, found in zip(ranks, trace.alignments, strict=True):
        if found.offset_ns is None or found.bound_ns is None:
            assert found.method == BY_CALLS, (seed, rank.rank)
            assert rank.jitter_ns, (seed, rank.rank)
            refused += 1
            continue
        for one in rank.ran:
            off = rank.at_profile(one.start_ns) - one.start_ns
            drifted = abs(found.drift_ppm) / 1e6 * (one.start_ns - rank.ran[0].start_ns)
            assert abs(found.offset_ns + off) <= found.bound_ns + drifted, (seed, rank.rank)
        agrees = not (rank.profile_ns or rank.drift_ppm)
        assert not (agrees and found.moved), (seed, rank.rank)
    # A drift changes lengths, and noise those of executions that have two rows.
    exact = not any(rank.drift_ppm or rank.jitter_ns for rank in ranks)
    rows, wanted = found_rows(trace, exact), true_rows(ranks, exact)
    if any(rank.jitter_ns for rank in ranks) and trace.alignments[0].method == BY_CALLS:
        # A call that noise has moved out of its operator has none; never another one.
        known = [row for row in rows if row[3]]
        if not refused:
            assert len(known) > 0.8 * len(rows), seed
        wanted = sorted((Counter(wanted) & Counter(known)).elements())
        rows = known
    else:
        assert not trace.findings.of_kind("execution_without_operator"), seed
    assert rows == wanted, seed
    assert not trace.findings.of_kind("execution_outside_steps") or refused, seed
    return refused


@pytest.mark.parametrize("seed", range(40))
def test_the_offset_lies_within_its_bound_and_every_operator_is_right(
    seed: int, tmp_path: Path
) -> None:
    check(seed, tmp_path)


@pytest.mark.slow
def test_the_same_for_three_hundred_captures(tmp_path: Path) -> None:
    refused = [check(seed, tmp_path / str(seed)) for seed in range(1000, 1300)]
    assert sum(refused) < 10


def test_clocks_that_agree_move_nothing(tmp_path: Path) -> None:
    write(tmp_path / "in", make(7, Shape(ranks=2, cores=2)))
    for align in ("auto", "none"):
        convert(tmp_path / "in", out=tmp_path / align, run="r", align=align)
    auto = tmp_path / "auto"
    files = [p.relative_to(auto) for p in auto.rglob("*") if p.is_file()]
    assert len(files) > 5
    for file in files:
        assert (auto / file).read_bytes() == (tmp_path / "none" / file).read_bytes()
    trace = neuron_tb.load(tmp_path / "in")
    assert not trace.findings.of_kind("clock_offset")
    assert [one.moved for one in trace.alignments] == [False, False]


def test_without_alignment_no_operator_is_claimed_by_time(tmp_path: Path) -> None:
    (rank,) = ranks = make(2, Shape(identified=False))
    rank.profile_ns = 30_500
    trace = neuron_tb.load(write(tmp_path, ranks), align="none")
    assert (trace.executions.operator == NONE).all()
    assert (trace.executions.step == NONE).all()
    assert trace.findings.of_kind("clock_offset_left") == 1
    assert not trace.findings.of_kind("clock_offset")
    recorded = {one.start_ns + 30_500 for one in rank.ran}
    assert set(trace.executions.start_ns.tolist()) == recorded


def test_without_alignment_ids_still_join_and_give_the_step(tmp_path: Path) -> None:
    """Work belongs to the step of its operator, also where its own time lies in none."""
    (rank,) = ranks = make(2, Shape())
    rank.profile_ns = 5_000_000
    trace = neuron_tb.load(write(tmp_path, ranks), align="none")
    assert found_rows(trace) == true_rows(ranks)
    assert not trace.findings.of_kind("execution_outside_steps")


def test_a_few_wrong_ids_do_not_move_the_line(tmp_path: Path) -> None:
    (rank,) = ranks = make(5, Shape(operators=20))
    rank.profile_ns = 250_000
    windows = [e["args"] for e in rank.framework if e["cat"] == "privateuse1_driver"]
    first, other = windows[0], windows[30]
    key = "nrt_sequence_id"
    first[key], other[key] = other[key], first[key]
    (found,) = neuron_tb.load(write(tmp_path, ranks)).alignments
    assert found.offset_ns is not None
    assert abs(found.offset_ns + 250_000) <= (found.bound_ns or 0) < 20_000


def test_equal_steps_are_not_told_apart_by_calls_alone(tmp_path: Path) -> None:
    """A profile that is off by a whole step fits as well as any other: nothing is claimed."""
    (rank,) = ranks = make(4, Shape(identified=False, steps=1, operators=4, collectives=False))
    period_ns = 1_000_000
    for events, key in ((rank.framework, "ts"), (rank.profile, "timestamp")):
        once = list(events)
        events += [e | {key: e[key] + n * period_ns} for n in range(1, 40) for e in once]
    rank.profile_ns = 400_000
    trace = neuron_tb.load(write(tmp_path, ranks))
    assert trace.findings.of_kind("clock_offset_unknown") == 1
    assert not trace.findings.of_kind("clock_offset")
    assert (trace.executions.operator == NONE).all()


@pytest.mark.parametrize("name", ["profile", "rank0", "i-0truth00"])
def test_the_user_may_say_the_offset(name: str, tmp_path: Path) -> None:
    (rank,) = ranks = make(2, Shape(identified=False))
    rank.profile_ns = 30_500
    trace = neuron_tb.load(write(tmp_path, ranks), align=f"offset={name}:-30500")
    assert found_rows(trace) == true_rows(ranks)
    kept = [(one.offset_ns, one.method) for one in trace.alignments]
    assert kept == [(-30_500, "given by --align")]
    assert set(trace.executions.start_ns.tolist()) == {one.start_ns for one in rank.ran}


@pytest.mark.parametrize("text", ["", "offset", "offset=profile", "offset=:5", "offset=a:b", "on"])
def test_other_words_are_wrong_use(text: str, samples: Path) -> None:
    with pytest.raises(WrongUseError, match="--align takes"):
        Align.of(text)
    run = CliRunner().invoke(main, ["summary", str(samples / "rmsnorm" / "naive"), "--align", text])
    assert run.exit_code == 2


def test_info_says_how_the_clocks_were_compared(tmp_path: Path) -> None:
    ranks = make(3, Shape(ranks=2))
    ranks[1].profile_ns = -33_000
    run = CliRunner().invoke(main, ["info", str(write(tmp_path, ranks))])
    assert "rank 0 of i-0truth00: agrees with the trace's" in run.output
    assert "rank 1 of i-0truth00: moved by +3" in run.output


def test_a_constant_is_preferred_to_a_drift_and_noise_widens_the_bound() -> None:
    draw = np.random.default_rng(1)
    time = np.arange(400, dtype=np.int64) * 1_000_000
    low = np.full(400, -70_000, np.int64)
    plain = fit(time, low, low + 20_000)
    assert plain is not None
    assert (plain.offset_ns, plain.drift_ppm, plain.excludes_zero) == (-60_000, 0.0, True)
    noise = draw.integers(-40_000, 40_000, 400)
    noisy = fit(time, low + noise, low + 20_000 + noise)
    assert noisy is not None
    assert noisy.drift_ppm == 0.0
    assert abs(noisy.offset_ns + 60_000) <= noisy.bound_ns
    assert noisy.bound_ns > plain.bound_ns
    drifting = fit(time, low + time // 20_000, low + 8_000 + time // 20_000)
    assert drifting is not None
    assert abs(drifting.drift_ppm - 50) < 2


def test_evidence_that_contradicts_itself_is_none() -> None:
    time = np.arange(100, dtype=np.int64) * 1_000_000
    low = (np.arange(100, dtype=np.int64) * 7919 % 100) * 50_000_000
    assert fit(time, low, low + 1_000) is None
