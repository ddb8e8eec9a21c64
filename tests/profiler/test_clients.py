"""Programs that use torch.profiler, installed from PyPI and not edited.

Each trains on the simulated Neuron as its users write it for a GPU. "All" is what the simulated
cores say they executed and copied in the windows, by correlation id.
"""

from __future__ import annotations

import importlib.util
import os

import pytest

from tests.profiler.running import on_neuron

CLIENTS = {
    "accelerate": "1",
    # By itself Lightning asks for CUDA only where it is there.
    "lightning": "device=always",
    "transformers": "1",
    "nanogpt_bench": "1",
    "tutorial": "1",
}
"""Names in scripts/clients.py, and the value of NEURON_TB with which each is run."""


PACKAGES = ("accelerate", "lightning", "transformers")


@pytest.mark.parametrize("client", CLIENTS)
def test_a_client_records_all_kernels_where_it_recorded_none(tmp_path, client):
    if client in PACKAGES and importlib.util.find_spec(client) is None and not os.environ.get("CI"):
        pytest.skip(f"{client} is in the extra test")
    (tmp_path / "plain").mkdir()
    (tmp_path / "ours").mkdir()
    plain = on_neuron("clients.py", client, place=tmp_path / "plain").result
    ours = on_neuron(
        "clients.py", client, place=tmp_path / "ours", neuron_tb=CLIENTS[client]
    ).result
    assert plain["kernels"] == plain["executed"] == 0
    assert plain["launches"] == ours["launches"] > 20
    assert ours["all"], ours
    assert ours["kernels"] == ours["executed"] > 10
    assert ours["unfinished"] == 0
    for found in ("class", "columns"):
        assert ours.get(found, True)
    assert ours.get("device", "neuron:0") == "neuron:0"
    assert ours.get("cycles", 2) == 2
