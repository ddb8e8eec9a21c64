"""The drop-in around torch: switching on, falling through, configuration, waiting, messages."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.profiler.running import ROOT, on_cpu, on_neuron

SCENARIOS = "scenarios.py"


def test_no_core_loses_its_work_at_the_end_of_a_window(tmp_path):
    plain = on_neuron(SCENARIOS, "lost_on_two_cores", place=tmp_path).result
    ours = on_neuron(SCENARIOS, "lost_on_two_cores", place=tmp_path, neuron_tb="1").result
    assert plain["kernels"] < 11
    assert plain["unfinished"] == 11 - plain["kernels"]
    assert ours == {"kernels": 11, "unfinished": 0}


def test_work_queued_before_the_window_does_not_delay_what_is_in_it(tmp_path):
    plain = on_neuron(SCENARIOS, "queued_before", place=tmp_path).result
    ours = on_neuron(SCENARIOS, "queued_before", place=tmp_path, neuron_tb="1").result
    assert plain["delay_ms"] > 200
    assert ours["delay_ms"] < 100


@pytest.mark.parametrize("name", ["lr=0.1", "a#b", "a;b", "a:b", "a\nb"])
def test_a_directory_that_would_crash_kineto_is_linked_to_a_harmless_one(tmp_path, name):
    ran = on_neuron(SCENARIOS, "directory_of", tmp_path / name, place=tmp_path, neuron_tb="1")
    assert name not in ran.result["config"]
    assert len(ran.result["reached"]) == 1
    assert "Kineto cannot take the path" in ran.err


def test_an_equals_sign_in_the_users_own_configuration_kills_only_plain_torch(tmp_path):
    place = tmp_path / "lr=0.1"
    plain = on_neuron(SCENARIOS, "directory_of", place, "own", place=tmp_path)
    assert plain.code == -11
    ours = on_neuron(SCENARIOS, "directory_of", place, "own", place=tmp_path, neuron_tb="1")
    assert len(ours.result["reached"]) == 1


def test_configuration_is_neurons_own_and_the_users_wins(tmp_path):
    seen = on_neuron(SCENARIOS, "configuration", place=tmp_path, neuron_tb="1").result
    assert "runtime:true" in seen["ours"]
    assert "device:false" in seen["ours"]
    assert "correlate_device_time:true" in seen["ours"]
    assert "cpu_util:true" in seen["theirs"]
    assert "profile_output_dir:mine" in seen["theirs"]
    assert seen["kept"]
    assert "runtime:true" in seen["completed"]
    assert seen["untouched"]
    assert seen["overloads"]


def test_a_neuron_config_without_correlation_is_not_asked_for_it(tmp_path):
    seen = on_neuron(
        SCENARIOS,
        "configuration",
        place=tmp_path,
        neuron_tb="1",
        env={"NEURON_SIM_CORRELATE": "0"},
    ).result
    assert "runtime:true" in seen["ours"]
    assert "correlate" not in seen["ours"]


def test_a_profile_of_the_cpu_opens_no_session_of_the_device(tmp_path):
    ran = on_neuron(SCENARIOS, "a_cpu_profile_opens_no_session", place=tmp_path, neuron_tb="1")
    assert ran.result == 0


def test_without_neuron_everything_is_plain_torch_but_the_names(tmp_path):
    plain = on_cpu(SCENARIOS, "cpu_only", place=tmp_path).result
    ours = on_cpu(SCENARIOS, "cpu_only", place=tmp_path, neuron_tb="1")
    assert plain["names"] is False
    assert ours.result == {**plain, "names": True}
    assert ours.err.count("neuron_tb:") == 1
    assert "this profile is plain torch's: no Neuron backend is loaded" in ours.err
    assert "CUDA is not available" in ours.err


def test_nothing_is_printed_before_a_profile_is_made(tmp_path):
    ran = on_neuron(SCENARIOS, "quiet_until_a_profile", place=tmp_path, neuron_tb="1")
    assert ran.result == {}
    assert ran.err == ""


def test_one_line_says_what_was_mapped_and_one_where_files_go(tmp_path):
    ran = on_neuron(SCENARIOS, "kernels", place=tmp_path, neuron_tb="1")
    said = [line for line in ran.err.splitlines() if line.startswith("neuron_tb:")]
    assert said == [
        "neuron_tb: profiling [CPU, CUDA] as [CPU, NEURON]",
        "neuron_tb: profiling neuron (2 cores); the Neuron Runtime's files go to "
        f"{tmp_path}/neuron_profile",
    ]


def test_other_ranks_and_quiet_users_hear_nothing(tmp_path):
    ran = on_neuron(SCENARIOS, "kernels", place=tmp_path, neuron_tb="1", env={"RANK": "1"})
    assert "neuron_tb:" not in ran.err
    ran = on_neuron(SCENARIOS, "kernels", place=tmp_path, neuron_tb="quiet=1")
    assert "neuron_tb:" not in ran.err
    assert ran.result["kernels"] == 3


@pytest.mark.parametrize(
    ("steps", "wait", "words"),
    [
        (0, 5, "step() was never called, its schedule's first active step is 6"),
        (
            3,
            10,
            "step() was called 3 times, its schedule's first active step is 11 (reached step 3 of",
        ),
    ],
)
def test_a_schedule_that_never_became_active_is_explained(tmp_path, steps, wait, words):
    ran = on_neuron(SCENARIOS, "nothing_recorded", steps, wait, place=tmp_path, neuron_tb="1")
    assert words in ran.err
    ran = on_neuron(SCENARIOS, "nothing_recorded", 3, 0, place=tmp_path, neuron_tb="1")
    assert "recorded nothing" not in ran.err


@pytest.mark.parametrize("value", ["device=sometimes", "colour=red", "sync_start=maybe"])
def test_a_value_that_cannot_be_read_is_one_line_and_torch_still_imports(tmp_path, value):
    ran = on_cpu(SCENARIOS, "quiet_until_a_profile", place=tmp_path, neuron_tb=value)
    assert ran.result == {}
    assert ran.err.startswith(f"neuron_tb: NEURON_TB={value} has no effect (")
    assert len(ran.err.splitlines()) == 1


@pytest.mark.parametrize("value", ["0", "", "off"])
def test_the_variable_can_say_no(tmp_path, value):
    ran = on_neuron(SCENARIOS, "kernels", place=tmp_path, neuron_tb=value)
    assert ran.result["kernels"] == 0


def test_the_entry_point_imports_nothing_when_nobody_asks():
    code = (
        "import sys; import neuron_tb._autoload as a; a.autoload();"
        "print(sorted(m for m in sys.modules if m.startswith('neuron_tb')))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "['neuron_tb', 'neuron_tb._autoload']"


def test_children_inherit_the_variable(tmp_path):
    ran = on_neuron(SCENARIOS, "children", place=tmp_path, neuron_tb="1")
    assert ran.result["kernels"] == 3


def test_run_runs_a_script_with_its_arguments(tmp_path):
    run = ("-m", "neuron_tb", "run", "--quiet")
    ran = on_neuron(SCENARIOS, "kernels", "--device", "x", place=tmp_path, run=run)
    assert ran.result == {"kernels": 3, "arguments": ["--device", "x"], "name": "__main__"}
    assert "neuron_tb:" not in ran.err


def test_run_reaches_child_processes_and_says_when_it_cannot(tmp_path):
    run = ("-m", "neuron_tb", "run")
    ran = on_neuron(SCENARIOS, "children", place=tmp_path, run=run)
    assert ran.result["kernels"] == 3
    ran = on_cpu(
        SCENARIOS,
        "quiet_until_a_profile",
        place=tmp_path,
        run=run,
        env={"TORCH_DEVICE_BACKEND_AUTOLOAD": "0"},
    )
    assert "TORCH_DEVICE_BACKEND_AUTOLOAD=0 keeps the drop-in out" in ran.err


def test_door_one_records_and_leaves_torch_alone(tmp_path):
    assert on_neuron(SCENARIOS, "door_one", place=tmp_path).result == {
        "kernels": [3, 3],
        "plain": 0,
        "sorted": True,
        "untouched": True,
        "subclass": True,
        "parameters": True,
        "missing": [],
        "same": True,
    }


def test_both_doors_together_do_everything_once(tmp_path):
    # Two cores at the start and at the end; torch itself waits for the current one once more.
    assert on_neuron(SCENARIOS, "both_doors", place=tmp_path).result == {"kernels": 3, "syncs": 5}


def test_an_unknown_torch_is_not_changed_and_door_one_still_works(tmp_path):
    ran = on_neuron(SCENARIOS, "missing_part", place=tmp_path)
    assert ran.result == {"kernels": 3, "changed": False}
    assert "_KinetoProfile.toggle_collection_dynamic" in ran.err


def test_run_runs_a_module(tmp_path):
    pytest.importorskip("torch", reason="the drop-in is for torch")
    command = [sys.executable, "-m", "neuron_tb", "run", "-m", "json.tool", "--compact", "a.json"]
    (tmp_path / "a.json").write_text('{"a":  1}')
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=True
    )
    assert done.stdout == '{"a":1}\n'


@pytest.mark.slow
def test_every_process_of_torchrun_records_under_its_own_name(tmp_path):
    run = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2")
    ran = on_neuron(SCENARIOS, "handler", "", place=tmp_path, run=run, neuron_tb="1")
    assert ran.code == 0, ran.err
    names = [p.name for p in (tmp_path / "logs").glob("*.pt.trace.json")]
    assert sorted(name.partition(".")[0][-6:] for name in names) == ["_rank0", "_rank1"]
    assert ran.err.count("neuron_tb: profiling neuron") == 1
