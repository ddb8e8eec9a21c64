"""Seeded damages: almost every intact event is read, none is invented, no loss is silent."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.robust.damage import damage
from tests.robust.measure import run
from tests.robust.texts import texts


@pytest.mark.slow
def test_intact_events_of_damaged_texts_are_read(tmp_path: Path) -> None:
    result = run(range(200), tmp_path)
    assert result.intact > 100_000
    assert result.share >= 0.99
    assert result.share_of_slices >= 0.99
    assert result.invented == []
    assert result.unreported == []


def test_intact_ranges_are_those_whose_bytes_are_unchanged() -> None:
    original = texts()[0]
    for seed in range(25):
        damaged = damage(original.text, seed)
        text = damaged.text
        assert text != original.text
        for number, place in damaged.intact(original.ranges):
            start, end = original.ranges[number]
            assert text[place : place + end - start] == original.text[start:end]
