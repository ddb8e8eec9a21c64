"""converters/model/lanes.py against a nesting found slice by slice."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from neuron_tb.converters.model import NONE
from neuron_tb.converters.model.lanes import (
    in_order_of_time,
    innermost_around,
    lay_out,
    self_time,
    union_length,
)

Slice = tuple[int, int, int]
"""(track, start, duration)"""

few = settings(max_examples=100, deadline=None)
small = st.integers(0, 24)
slices_of_two_tracks = st.lists(st.tuples(st.integers(0, 1), small, st.integers(0, 9)), max_size=40)


@st.composite
def nested(draw: st.DrawFn) -> list[Slice]:
    """Slices of one track that nest or are disjoint, with ties and empty ones, in any order."""
    slices: list[Slice] = []

    def fill(start: int, end: int, depth: int) -> None:
        slices.append((0, start, end - start))
        for inner_start, inner_end in cuts(start, end) if depth else []:
            fill(inner_start, inner_end, depth - 1)

    def cuts(start: int, end: int) -> list[tuple[int, int]]:
        # A child that starts at its parent's end is beside it, not inside.
        last = max(start, end - 1)
        points = sorted(draw(st.lists(st.integers(start, last), max_size=6)))
        pairs = list(zip(points[::2], points[1::2], strict=False))
        if pairs and draw(st.booleans()):
            pairs[-1] = (pairs[-1][0], end)
        return pairs

    for place in range(draw(st.integers(1, 3))):
        fill(place * 30, place * 30 + draw(st.integers(0, 29)), 3)
    return draw(st.permutations(slices))


def columns(slices: list[Slice]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    table = np.array(slices, np.int64).reshape(-1, 3)
    return table[:, 0].astype(np.int32), table[:, 1].copy(), table[:, 2].copy()


def in_drawing_order(slices: list[Slice], lane: list[int] | np.ndarray) -> list[int]:
    return sorted(
        range(len(slices)),
        key=lambda i: (slices[i][0], lane[i], slices[i][1], -slices[i][2], i),
    )


def parents_one_by_one(slices: list[Slice], lane: np.ndarray, end: np.ndarray) -> dict[int, int]:
    """The innermost open slice at each start: what a viewer's stack holds."""
    parents, stack, row = {}, [], None
    ordered = sorted(
        range(len(slices)),
        key=lambda i: (slices[i][0], lane[i], slices[i][1], -(end[i] - slices[i][1]), i),
    )
    for i in ordered:
        if (slices[i][0], lane[i]) != row:
            stack, row = [], (slices[i][0], lane[i])
        while stack and end[stack[-1]] <= slices[i][1]:
            stack.pop()
        parents[i] = stack[-1] if stack else NONE
        stack.append(i)
    return parents


def assert_drawable(slices: list[Slice], lane: np.ndarray, end: np.ndarray) -> None:
    for i, (track, start, _) in enumerate(slices):
        for j, (other_track, other_start, _) in enumerate(slices[:i]):
            if (track, lane[i]) != (other_track, lane[j]):
                continue
            disjoint = end[i] <= other_start or end[j] <= start
            inside = start >= other_start and end[i] <= end[j]
            around = other_start >= start and end[j] <= end[i]
            assert disjoint or inside or around, (slices[i], slices[j])


@few
@given(nested())
def test_properly_nested_slices_stay_in_one_lane(slices: list[Slice]) -> None:
    layout = lay_out(*columns(slices))
    assert layout.crossings == layout.rounded == 0
    assert not layout.lane.any()
    assert (layout.end_ns - columns(slices)[1]).tolist() == [d for _, _, d in slices]


@few
@given(nested())
def test_parents_and_depths_are_those_of_a_stack(slices: list[Slice]) -> None:
    layout = lay_out(*columns(slices))
    expected = parents_one_by_one(slices, layout.lane, layout.end_ns)
    assert dict(enumerate(layout.parent.tolist())) == expected
    for i, parent in expected.items():
        assert layout.depth[i] == (0 if parent == NONE else layout.depth[parent] + 1)


@few
@given(slices_of_two_tracks)
def test_no_two_slices_of_a_lane_cross_and_no_length_changes(slices: list[Slice]) -> None:
    layout = lay_out(*columns(slices), resolution_ns=0)
    assert_drawable(slices, layout.lane, layout.end_ns)
    assert layout.rounded == 0
    assert layout.end_ns.tolist() == [start + duration for _, start, duration in slices]
    assert layout.crossings == np.count_nonzero(layout.lane)


@few
@given(slices_of_two_tracks)
def test_parents_are_in_the_same_lane_and_found_as_by_a_stack(slices: list[Slice]) -> None:
    layout = lay_out(*columns(slices), resolution_ns=0)
    expected = parents_one_by_one(slices, layout.lane, layout.end_ns)
    assert dict(enumerate(layout.parent.tolist())) == expected
    for i, parent in expected.items():
        assert layout.depth[i] == (0 if parent == NONE else layout.depth[parent] + 1)


@few
@given(slices_of_two_tracks)
def test_the_order_puts_parents_before_children(slices: list[Slice]) -> None:
    layout = lay_out(*columns(slices), resolution_ns=0)
    assert layout.order.tolist() == in_drawing_order(slices, layout.lane)


@few
@given(slices_of_two_tracks, st.integers(0, 5))
def test_rounding_moves_ends_by_no_more_than_the_resolution(
    slices: list[Slice], resolution: int
) -> None:
    layout = lay_out(*columns(slices), resolution_ns=resolution)
    assert_drawable(slices, layout.lane, layout.end_ns)
    _, start, duration = columns(slices)
    moved = start + duration - layout.end_ns
    assert np.all((moved >= 0) & (moved <= resolution))
    assert layout.rounded == np.count_nonzero(moved)
    ends = {(t, int(e)) for t, e in zip(columns(slices)[0], layout.end_ns, strict=True)}
    for i in np.flatnonzero(moved).tolist():
        assert (slices[i][0], int(layout.end_ns[i])) in ends


@few
@given(slices_of_two_tracks)
def test_a_lane_is_only_used_where_all_before_are_crossed(slices: list[Slice]) -> None:
    layout = lay_out(*columns(slices), resolution_ns=0)
    for i, (track, start, duration) in enumerate(slices):
        for lane in range(int(layout.lane[i])):
            assert any(
                other_track == track
                and layout.lane[j] == lane
                and other_start < start + duration
                and start < other_start + other_duration
                for j, (other_track, other_start, other_duration) in enumerate(slices)
            ), "a lower lane was free"


def test_thousands_that_cross_each_other_are_laid_out_in_time() -> None:
    n = 20_000
    start, length = np.arange(n) * 10, np.full(n, 10 * n // 2)
    began = time.process_time()
    layout = lay_out(np.zeros(n, np.int32), start, length)
    assert time.process_time() - began < 5
    assert layout.lane.max() + 1 == n // 2
    for lane in (0, 127, 128, n // 4):
        rows = np.flatnonzero(layout.lane == lane)
        assert np.all(start[rows][1:] >= (start + length)[rows][:-1])


def test_touching_slices_do_not_overlap() -> None:
    layout = lay_out(*columns([(0, 0, 10), (0, 10, 5), (0, 15, 0), (0, 15, 3)]))
    assert layout.crossings == 0
    assert layout.parent.tolist() == [NONE, NONE, 3, NONE]


def test_an_empty_slice_at_the_end_of_another_stands_beside_it() -> None:
    layout = lay_out(*columns([(0, 0, 10), (0, 10, 0), (0, 10, 0)]))
    assert layout.crossings == 0
    assert layout.parent.tolist() == [NONE, NONE, NONE]


def test_crossing_kernels_get_their_own_lane_with_their_lengths_unchanged() -> None:
    layout = lay_out(*columns([(0, 0, 10), (0, 5, 10), (0, 9, 3), (0, 20, 1)]))
    assert layout.lane.tolist() == [0, 1, 1, 0]
    assert layout.crossings == 2
    assert layout.end_ns.tolist() == [10, 15, 12, 21]


def test_a_crossing_within_the_resolution_is_rounding() -> None:
    layout = lay_out(*columns([(0, 0, 10), (0, 5, 6)]), resolution_ns=1)
    assert (layout.crossings, layout.rounded) == (0, 1)
    assert layout.end_ns.tolist() == [10, 10]
    assert layout.parent.tolist() == [NONE, 0]


def test_large_times_are_exact() -> None:
    base = 2**62
    layout = lay_out(*columns([(0, base, 10), (0, base + 9, 2)]), resolution_ns=0)
    assert layout.lane.tolist() == [0, 1]
    assert layout.end_ns.tolist() == [base + 10, base + 11]


@pytest.mark.parametrize("count", [0, 1])
def test_nothing_and_one_slice_are_laid_out(count: int) -> None:
    layout = lay_out(*columns([(3, 7, 0)] * count))
    assert layout.order.tolist() == list(range(count))
    assert layout.depth.tolist() == [0] * count


@few
@given(nested())
def test_self_times_add_up_to_the_time_at_the_top(slices: list[Slice]) -> None:
    layout = lay_out(*columns(slices))
    _, _, duration = columns(slices)
    own = self_time(layout.parent, duration)
    assert own.sum() == duration[layout.parent == NONE].sum()
    for i, _ in enumerate(slices):
        assert own[i] == duration[i] - duration[layout.parent == i].sum()


@few
@given(st.lists(st.tuples(small, st.integers(0, 9)), max_size=30))
def test_the_union_counts_covered_time_once(intervals: list[tuple[int, int]]) -> None:
    start = np.array([s for s, _ in intervals], np.int64)
    end = np.array([s + d for s, d in intervals], np.int64)
    covered = {t for s, d in intervals for t in range(s, s + d)}
    assert union_length(start, end) == len(covered)


@few
@given(nested(), st.lists(st.tuples(st.integers(0, 1), st.integers(0, 90), st.integers(0, 9))))
def test_the_innermost_slice_around_an_interval(slices: list[Slice], asked: list[Slice]) -> None:
    track, start, duration = columns(slices)
    of_track, begin, length = columns(asked)
    found = innermost_around(track, start, duration, of_track, begin, begin + length)
    for (where, first, span), row in zip(asked, found.tolist(), strict=True):
        around = [
            (s, d) for t, s, d in slices if t == where and s <= first and s + d >= first + span
        ]
        # A point where one slice ends and another begins is inside both.
        inside = [d for s, d in around if span or s == first or s + d > first]
        if row == NONE:
            assert not around
        else:
            assert slices[row][0] == where
            assert slices[row][1:] in around
            assert not inside or slices[row][2] <= min(inside)


@given(st.data(), st.sampled_from([3, 1 << 17]))
def test_the_order_of_time_is_by_track_then_start_then_longest_first(
    data: st.DataObject, tracks: int
) -> None:
    n = data.draw(st.integers(0, 12))

    def column(largest: int) -> Any:
        return np.array(data.draw(st.lists(st.integers(0, largest), min_size=n, max_size=n)), int)

    track, start, length = column(tracks), column(9), column(3)
    if data.draw(st.booleans()):
        start = np.sort(start)
    rows = in_order_of_time(track.astype(np.int32), start, length).tolist()
    assert rows == sorted(range(n), key=lambda row: (track[row], start[row], -length[row], row))
