"""Device time in key_averages(): kernel events, windows, and what is not measured."""

from __future__ import annotations

import pytest

from tests.profiler.running import on_neuron


@pytest.fixture(scope="module")
def averages(tmp_path_factory):
    def run(mode, neuron_tb="explorer_seconds=0", env=None):
        place = tmp_path_factory.mktemp(mode)
        return on_neuron(
            "scenarios.py", "averages", place=place, mode=mode, neuron_tb=neuron_tb, env=env
        ).result

    return {
        "kernel": run("kernel"),
        "driver": run("driver"),
        "none": run("none"),
        "plain": run("driver", None),
        "explorer": run("driver", "1"),
        "serving": run("driver", "1", {"NEURON_SIM_EXPLORER_SERVE": "1"}),
        "failing": run("driver", "1", {"NEURON_SIM_EXPLORER_FAIL": "1"}),
    }


def test_neuron_explorers_profile_fills_the_columns(averages):
    explorer = averages["explorer"]
    assert explorer["device"]["aten::addmm"] == pytest.approx(200)
    assert "NEURON times: Neuron Explorer's system profile" in explorer["table"]
    assert "NEURON window" in explorer["table"]
    # Of one execution, though each has a window beside it.
    assert explorer["average"]["aten::addmm"] == pytest.approx(200)
    assert explorer["tree"] == averages["kernel"]["tree"]
    # The trace stays as Kineto made it.
    assert explorer["categories"] == averages["driver"]["categories"]


def test_an_explorer_that_goes_on_serving_is_ended(averages):
    assert averages["serving"]["device"] == pytest.approx(averages["explorer"]["device"])


def test_an_explorer_that_fails_leaves_the_windows(averages):
    assert averages["failing"]["device"] == {}
    assert "NEURON window total" in averages["failing"]["table"]


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


def test_a_launch_that_nothing_measured_shows_a_dash_and_is_counted(averages):
    driver = averages["driver"]["table"].splitlines()
    (row,) = [line.split() for line in driver if line.strip().startswith("aten::_copy_from")]
    assert row[-2:] == ["-", "1"]
    assert any(line.startswith("1 of ") and "have no device time" in line for line in driver)
    assert "have no device time" not in averages["kernel"]["table"]


def test_a_profile_without_device_events_says_so(averages):
    none = averages["none"]
    assert none["device"] == {}
    assert "This profile has no work of the Neuron device" in none["table"]


def test_plain_torch_cannot_print_a_table_of_windows(averages):
    assert averages["plain"]["table"].startswith("AssertionError")
    assert averages["plain"]["tree"] != averages["kernel"]["tree"]
