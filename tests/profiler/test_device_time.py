"""Device time in key_averages(): kernel events, windows, and what is not measured."""

from __future__ import annotations

import pytest

from tests.profiler.running import on_neuron


@pytest.fixture(scope="module")
def averages(tmp_path_factory):
    def run(mode, neuron_tb):
        place = tmp_path_factory.mktemp(mode)
        return on_neuron(
            "scenarios.py", "averages", place=place, mode=mode, neuron_tb=neuron_tb
        ).result

    return {
        "kernel": run("kernel", "1"),
        "driver": run("driver", "1"),
        "none": run("none", "1"),
        "plain torch, driver": run("driver", "device=always"),
    }


def test_kernel_events_fill_the_columns(averages):
    kernel = averages["kernel"]
    assert kernel["device"]["aten::addmm"] == pytest.approx(200)
    assert "Self NEURON %" in kernel["table"]
    assert "NEURON window" not in kernel["table"]
    assert "NEURON times: kernel events of the trace" in kernel["table"]


def test_windows_leave_the_cpu_side_as_kernel_events_do(averages):
    kernel, driver = averages["kernel"], averages["driver"]
    assert driver["categories"]["privateuse1_driver"] > 0
    assert driver["cpu"] == kernel["cpu"]
    assert driver["tree"] == kernel["tree"]
    assert driver["self_cpu_total"] <= driver["span_us"]


def test_windows_are_no_device_time_but_a_column(averages):
    driver = averages["driver"]
    assert driver["device"] == {}
    assert "Self NEURON %" not in driver["table"]
    assert "NEURON window" in driver["table"]
    assert "NEURON window total" in driver["table"]
    assert driver["windows"]["aten::addmm"] >= 200
    assert "No device time was measured" in driver["table"]


def test_a_profile_without_device_events_says_so(averages):
    none = averages["none"]
    assert none["device"] == {}
    assert "This profile has no work of the Neuron device" in none["table"]
