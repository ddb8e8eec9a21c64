"""What GPU users write, on the simulated Neuron: without and with the drop-in."""

from __future__ import annotations

import pytest

from tests.profiler.running import CUDA_BUILD, TORCH, on_neuron

SINCE_2_12 = pytest.mark.skipif(TORCH < (2, 12), reason="torch has no filters before 2.12")
USE_CUDA_IS_GONE = TORCH >= (2, 14)
KERNELS = 3
"""What the scripts' ``work()`` launches: ones, mm, relu."""


@pytest.fixture(scope="module")
def idioms(tmp_path_factory):
    return on_neuron("idioms.py", place=tmp_path_factory.mktemp("idioms"), mode="kernel").result


@pytest.mark.parametrize(
    "name",
    [
        "cpu_cuda",
        "cpu_cuda_xpu",
        "cuda_xpu_beside_privateuse1",
        pytest.param("a_filter", marks=SINCE_2_12),
        "torch_accelerator",
    ],
)
def test_an_accelerator_asked_for_is_neuron_instead_of_nothing(idioms, name):
    assert idioms["plain"][name] == 0
    assert idioms["drop-in"][name] == KERNELS


@pytest.mark.parametrize("name", ["only_cuda", "a_generator"])
def test_requests_that_torch_refuses_without_cuda_record_neuron(idioms, name):
    assert idioms["plain"][name] == "AssertionError: No activities specified for the profiler"
    assert idioms["drop-in"][name] == KERNELS


@pytest.mark.parametrize("name", ["no_activities", "use_cuda", "the_name_neuron"])
def test_requests_that_torch_understands_stay_as_they_are(idioms, name):
    unknown = (name == "use_cuda" and USE_CUDA_IS_GONE) or (
        name == "the_name_neuron" and TORCH < (2, 13)
    )
    if unknown:
        assert "Error" in idioms["plain"][name]
    else:
        assert idioms["plain"][name] == KERNELS
    assert idioms["drop-in"][name] == KERNELS


def test_a_request_for_the_cpu_stays_one_unless_the_device_is_always_added(idioms):
    assert idioms["drop-in"]["cpu_when_cuda_is_absent"] == 0
    assert idioms["always"]["cpu_when_cuda_is_absent"] == KERNELS


@pytest.mark.parametrize("name", ["legacy_use_cuda", "legacy_use_device"])
def test_the_autograd_profiler_measures_the_device(idioms, name):
    if name == "legacy_use_cuda" and USE_CUDA_IS_GONE:
        assert idioms["plain"][name].startswith("TypeError")
    else:
        assert idioms["plain"][name] == 0
    assert idioms["drop-in"][name] == pytest.approx(200)


def test_tensorboard_handler_keeps_its_file_name_and_gets_a_manifest(idioms):
    plain, ours = idioms["plain"]["tensorboard_handler"], idioms["drop-in"]["tensorboard_handler"]
    assert plain["kernels"] == 0
    assert ours["kernels"] == KERNELS
    (trace,) = ours["traces"]
    assert trace.startswith("w.")
    assert ours["file"] == trace
    assert len(ours["sessions"]) == 1
    assert "/tb/neuron_profile/i-simulated_pid_" in ours["sessions"][0]


def test_a_handler_of_the_users_own_runs_once_per_cycle(idioms):
    ours = idioms["drop-in"]["own_handler"]
    assert ours["steps"] == idioms["plain"]["own_handler"]["steps"] == [5, 9]
    assert ours["kernels"] == 2 * KERNELS
    assert ours["columns"]
    assert ours["manifest"] == [3, 4]


def test_every_sort_key_of_a_gpu_script_works(idioms):
    assert len(idioms["plain"]["sort_keys"]) == 5
    assert idioms["drop-in"]["sort_keys"] == []


def test_every_name_of_a_device_time_works_on_events_and_averages(idioms):
    assert "average.self_cuda_time_total" in idioms["plain"]["names_of_times"]["failed"]
    assert idioms["drop-in"]["names_of_times"]["failed"] == []
    assert idioms["drop-in"]["names_of_times"]["total"] > 0


def test_export_stacks_is_not_empty(idioms):
    assert idioms["plain"]["stacks"]["self_cpu_time_total"] == 0
    assert min(idioms["drop-in"]["stacks"].values()) > 0


def test_kineto_results_and_the_event_tree_stay_torchs(idioms):
    assert idioms["drop-in"]["kineto_results"]["tree"] == idioms["plain"]["kineto_results"]["tree"]
    assert idioms["drop-in"]["kineto_results"]["device"] > 0


@pytest.mark.parametrize(
    ("name", "kernels"), [("start_step_stop", [2 * KERNELS]), ("resumed_step_number", [KERNELS])]
)
def test_windows_without_a_with_statement(idioms, name, kernels):
    assert idioms["plain"][name] == [0]
    assert idioms["drop-in"][name] == kernels


def test_schedule_and_handler_assigned_later_count(idioms):
    assert idioms["plain"]["assigned_later"]["kernels"] == [0]
    assert idioms["drop-in"]["assigned_later"] == {
        "kernels": [KERNELS],
        "neuron_files_below": True,
    }


def test_a_client_that_filters_by_signature_keeps_its_arguments(idioms):
    kept = [["profile_memory", "record_shapes", "schedule", "with_stack"], True]
    assert idioms["drop-in"]["signature_filter"] == kept


def test_the_class_stays_torchs_and_subclasses_made_earlier_record(idioms):
    assert idioms["drop-in"]["class_identity"] == [True, True, True, True, KERNELS]


def test_execution_traces_are_left_alone(idioms):
    assert idioms["drop-in"]["execution_trace"] == [KERNELS, True]


def test_a_second_export_copies_the_first(idioms):
    assert idioms["plain"]["exported_twice"] == "RuntimeError: Trace is already saved."
    assert idioms["drop-in"]["exported_twice"] == [KERNELS, True]


def test_a_path_object_is_a_path(idioms):
    assert "AttributeError" in idioms["plain"]["a_path_object"]
    assert idioms["drop-in"]["a_path_object"] == KERNELS


def test_device_work_cannot_be_switched_off_within_a_profile(idioms):
    assert idioms["drop-in"]["toggling"] == 2 * KERNELS


def test_accumulated_events_hold_all_cycles(idioms):
    assert idioms["drop-in"]["accumulated_events"] == 2


@pytest.mark.parametrize(
    ("name", "failure"),
    [
        ("cuda_synchronize", "AssertionError: Torch not compiled with CUDA"),
        ("cuda_event", "RuntimeError: Tried to instantiate dummy base class Event"),
        ("nvtx", "RuntimeError: NVTX functions not installed"),
        ("cuda_profiler", "AssertionError"),
        ("emit_nvtx", "AssertionError"),
        ("memory_history", "AttributeError"),
        ("peak_memory", "AttributeError"),
    ],
)
def test_calls_of_torch_cuda_that_fail_here_work_with_shims(idioms, name, failure):
    if not CUDA_BUILD:
        assert idioms["plain"][name].startswith(failure)
    assert "Error" not in str(idioms["shims"][name])


def test_cuda_events_measure_the_device(idioms):
    assert idioms["shims"]["cuda_event"] >= KERNELS * 0.2


def test_nvtx_ranges_are_ranges_of_the_profile_even_if_imported_earlier(idioms):
    assert idioms["shims"]["nvtx"] == [0, ["across", "inner 1", "outer", "point"]]


def test_cuda_profiler_start_and_stop_make_a_trace_each(idioms):
    assert idioms["shims"]["cuda_profiler"] == [KERNELS, KERNELS]


def test_cuda_profiler_start_does_not_empty_a_profile_that_runs(idioms):
    assert idioms["shims"]["cuda_profiler_within_a_profile"] == KERNELS


def test_no_memory_snapshot_is_invented(idioms):
    assert idioms["shims"]["memory_history"] is False


def test_disable_restores_torch_exactly(idioms):
    assert idioms["restored"] == [True, True]
