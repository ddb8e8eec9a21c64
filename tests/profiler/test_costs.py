"""Overhead and memory of the drop-in, against plain torch on the simulated Neuron."""

from __future__ import annotations

import pytest

from tests.profiler.running import on_neuron


@pytest.mark.slow
def test_the_drop_in_costs_little(tmp_path):
    found = on_neuron("costs.py", "overhead", place=tmp_path).result
    # Only a whole confidence interval above the limit is evidence.
    assert found["idle"]["low"] < 0.02, found
    assert found["recording"]["low"] < 0.05, found


@pytest.mark.slow
def test_a_thousand_profiles_keep_no_memory(tmp_path):
    plain = on_neuron("costs.py", "memory", "0", place=tmp_path, seconds=600).result
    ours = on_neuron("costs.py", "memory", "1", place=tmp_path, seconds=600).result
    assert ours - plain < 20, (plain, ours)
