"""Programs that use torch.profiler, installed from PyPI and not edited."""

from __future__ import annotations

import importlib.util

import pytest

from tests.profiler.running import on_neuron


@pytest.mark.slow
@pytest.mark.parametrize(
    ("client", "kernels"), [("accelerate", 0), ("lightning", 0), ("transformers", 0)]
)
def test_a_client_records_kernels_where_it_recorded_none(tmp_path, client, kernels):
    if importlib.util.find_spec(client) is None:
        pytest.skip(f"{client} is not installed")
    (tmp_path / "plain").mkdir()
    (tmp_path / "ours").mkdir()
    plain = on_neuron("clients.py", client, place=tmp_path / "plain").result
    ours = on_neuron("clients.py", client, place=tmp_path / "ours", neuron_tb="1").result
    assert plain["kernels"] == kernels
    assert ours["kernels"] > 0
    assert ours.get("class", True)
    assert ours.get("columns", True)


def test_nanogpts_benchmark_loop(tmp_path):
    (tmp_path / "plain").mkdir()
    plain = on_neuron("clients.py", "nanogpt_bench", place=tmp_path / "plain").result
    ours = on_neuron("clients.py", "nanogpt_bench", place=tmp_path, neuron_tb="1").result
    assert plain["kernels"] == 0
    assert ours["kernels"] > 20


def test_the_loops_of_pytorchs_tutorial(tmp_path):
    (tmp_path / "plain").mkdir()
    plain = on_neuron("clients.py", "tutorial", place=tmp_path / "plain").result
    ours = on_neuron("clients.py", "tutorial", place=tmp_path, neuron_tb="1").result
    assert plain["kernels"] == 0
    assert not plain["columns"]
    # Three kernels a run of the model: one inference, and two cycles of two steps.
    assert ours["kernels"] == 3 * (1 + 2 * 2)
    assert ours["columns"]
    assert ours["cycles"] == 2
