"""Overhead and memory of the drop-in, against plain torch on the simulated Neuron."""

from __future__ import annotations

from tests.profiler.running import on_neuron

LIMITS = {"idle": 0.02, "recording": 0.05}
"""Of a 20 ms step: enabled with no profile active; beyond torch's profiler in an active step."""


def test_the_drop_in_costs_little(tmp_path):
    found = on_neuron("costs.py", "overhead", place=tmp_path).result
    # Only a whole confidence interval above the limit is evidence.
    for state, limit in LIMITS.items():
        for clock, interval in found[state].items():
            assert interval["low"] < limit, (state, clock, found)
    # The measurement sees 1.5 ms, 7.5 % of a step, where they are.
    assert found["slowed"]["processor"]["low"] > max(LIMITS.values()), found


def test_a_thousand_profiles_keep_no_memory(tmp_path):
    plain = on_neuron("costs.py", "memory", "0", place=tmp_path, seconds=600).result
    ours = on_neuron("costs.py", "memory", "1", place=tmp_path, seconds=600).result
    assert ours - plain < 20, (plain, ours)
