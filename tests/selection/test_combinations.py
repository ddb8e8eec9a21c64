"""Filters together keep what every single one keeps, whatever the capture."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import neuron_tb
from neuron_tb.commands import main
from neuron_tb.converters.errors import NothingLeftError
from neuron_tb.converters.model import Trace
from neuron_tb.converters.selection.filters import Filters
from tests.truth import Ran, Rank, Shape, among, make, write


def executions(trace: Trace) -> list[tuple[int | None, int, int, str, int, int]]:
    """Rank, core, step, operator, start and length of everything that is counted."""
    work = trace.executions.take(trace.executions.counted)
    devices = [trace.devices[d] for d in work.device.tolist()]
    return sorted(
        (trace.processes[d.process].rank, d.index, int(number), trace.strings[name], start, length)
        for d, number, name, start, length in zip(
            devices,
            trace.steps.number[work.step].tolist(),
            work.name.tolist(),
            work.start_ns.tolist(),
            work.duration_ns.tolist(),
            strict=True,
        )
    )


def expected(ran: list[Ran]) -> list[tuple[int | None, int, int, str, int, int]]:
    return sorted(
        (one.rank, one.core, one.step, one.operator, one.start_ns, one.length_ns) for one in ran
    )


def some_filters(
    draw: random.Random, ranks: list[Rank], zero_ns: int
) -> tuple[dict[str, Any], Callable[[Ran], bool]]:
    """Options, and what they keep of the truth."""
    tests: list[Callable[[Ran], bool]] = []
    words: dict[str, Any] = {}
    if draw.random() < 0.6:
        wanted = {draw.randrange(len(ranks)) for _ in range(2)}
        words["ranks"] = ",".join(map(str, sorted(wanted)))
        tests.append(lambda one: one.rank in wanted)
    if draw.random() < 0.6:
        core = draw.randrange(3)
        words["cores"] = str(core)
        tests.append(lambda one: one.core == core)
    if draw.random() < 0.6:
        first = draw.randrange(4, 8)
        last = first + draw.randrange(2)
        words["steps"] = f"{first}:{last}"
        tests.append(lambda one: first <= one.step <= last)
    if draw.random() < 0.6:
        begin = draw.randrange(600)
        end = begin + draw.randrange(1, 400)
        words["time"] = f"{begin}us:{end}us"
        begin_ns, end_ns = zero_ns + begin * 1000, zero_ns + end * 1000
        tests.append(lambda one: any(row[1] < end_ns and row[2] > begin_ns for row in one.rows))
    if draw.random() < 0.4:
        words["events"] = draw.choice(("hardware", "device_exec", "nc_exec_running,^cc_running"))
    return words, lambda one: all(test(one) for test in tests)


@pytest.mark.parametrize("seed", range(25))
def test_any_filters_together_keep_what_the_truth_has(seed: int, tmp_path: Path) -> None:
    draw = random.Random(1000 + seed)
    shape = Shape(
        ranks=draw.choice((1, 2, 3)), cores=draw.choice((1, 2, 3)), lnc2=bool(draw.randrange(2))
    )
    ranks = make(seed, shape)
    write(tmp_path, ranks)
    whole = neuron_tb.load(tmp_path)
    assert executions(whole) == expected(among(ranks, lambda one: True))
    zero_ns = whole.time_range()[0]
    for _ in range(8):
        words, keeps = some_filters(draw, ranks, zero_ns)
        wanted = expected(among(ranks, keeps))
        try:
            found = executions(neuron_tb.load(tmp_path, filters=Filters.of(**words)))
        except NothingLeftError:
            found = []
        assert found == wanted, words


def test_filters_give_the_same_in_any_order(tmp_path: Path) -> None:
    """A later filter brings nothing back that an earlier one has left out."""
    write(tmp_path, make(3, Shape(ranks=2, cores=2)))
    alone = [
        set(executions(neuron_tb.load(tmp_path, filters=Filters.of(**words))))
        for words in ({"cores": "0"}, {"steps": "6"}, {"ranks": "1"})
    ]
    together = neuron_tb.load(tmp_path, filters=Filters.of(cores="0", steps="6", ranks="1"))
    assert set(executions(together)) == set.intersection(*alone)
    assert together.executions.duration_ns.sum() > 0


def run(*words: object) -> tuple[int, str]:
    result = CliRunner().invoke(main, [str(word) for word in words])
    return result.exit_code, result.output


def test_a_word_that_is_no_event_is_named_with_the_nearest(tmp_path: Path) -> None:
    write(tmp_path / "in", make(1, Shape(ranks=2)))
    for word, near in (("nc_exec_runing", "nc_exec_running"), ("^hardwear", "hardware")):
        code, text = run("summary", tmp_path / "in", "--events", word)
        assert (code, text.count("\n")) == (2, 1), text
        assert word in text
        assert near in text
    out = tmp_path / "out"
    code, text = run("convert", tmp_path / "in", "-o", out, "--events", "bogus", "--workers", "2")
    assert code == 2, text
    assert "bogus" in text


def test_an_event_that_is_known_and_not_there_is_no_mistake(tmp_path: Path) -> None:
    write(tmp_path, make(1, Shape()))
    code, text = run("summary", tmp_path, "--events", "nrt_load,hardware")
    assert code == 0, text


@pytest.mark.parametrize(
    ("option", "value"),
    [("--cores", "x"), ("--steps", "5:2"), ("--time", "1ms"), ("--ranks", "-"), ("--events", "")],
)
def test_a_wrong_value_is_wrong_use(option: str, value: str, samples: Path) -> None:
    code, text = run("summary", samples / "rmsnorm" / "naive", option, value)
    assert code == 2, text
    assert option in text


def test_an_empty_result_says_which_filter_left_nothing(tmp_path: Path) -> None:
    write(tmp_path, make(1, Shape(cores=2)))
    code, text = run("summary", tmp_path, "--cores", "7")
    assert code == 0, text
    assert "of 24 executions nothing is left after --cores 7" in text
    assert "no system profile" not in text
    code, text = run("summary", tmp_path, "--cores", "0", "--steps", "99")
    assert code == 1, text
    assert "nothing is left after --cores 0 --steps 99" in text
