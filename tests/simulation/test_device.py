"""The simulated Neuron: what it emits, what it loses, and that its files give its own truth back.

A process can register one PrivateUse1 device, so every scenario is a script in a subprocess; it
ends by printing one line of JSON.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

import neuron_tb
from neuron_tb.converters.model import Source
from neuron_tb.simulation.device import sim

ROOT = Path(__file__).resolve().parents[2]

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(bool(sim.missing()), reason=sim.missing() or "it can be built here"),
]

_PRELUDE = """
import json, os, time
import torch
from torch.profiler import ProfilerActivity, profile, record_function, schedule
from neuron_tb.simulation.device import sim

BOTH = [ProfilerActivity.CPU, ProfilerActivity.PrivateUse1]

def synchronize_all():
    for core in range(torch.neuron.device_count()):
        torch.neuron.synchronize(core)

def events(profiler, path="trace.json"):
    profiler.export_chrome_trace(path)
    with open(path) as file:
        return json.load(file)["traceEvents"]

def answer(**values):
    print("ANSWER", json.dumps(values))
"""

_TRAIN = """
torch.manual_seed(0)
net = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.ReLU(), torch.nn.Linear(32, 4))
net = net.to("neuron")
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
x, y = torch.randn(8, 16).to("neuron"), torch.randn(8, 4).to("neuron")

def step():
    with record_function("forward"):
        loss = torch.nn.functional.mse_loss(net(x), y)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    return loss
"""


def _run(directory: Path, script: str, env: dict[str, str] | None = None) -> dict[str, Any]:
    """What the script answered; the working directory is the test's own."""
    variables = {**os.environ, "KINETO_LOG_LEVEL": "6", **(env or {})}
    variables["PYTHONPATH"] = os.pathsep.join(
        [str(ROOT), *filter(None, [variables.get("PYTHONPATH")])]
    )
    done = subprocess.run(
        [sys.executable, "-c", _PRELUDE + textwrap.dedent(script)],
        cwd=directory,
        env=variables,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    lines = [line for line in done.stdout.splitlines() if line.startswith("ANSWER ")]
    answer: dict[str, Any] = json.loads(lines[-1].removeprefix("ANSWER "))
    return answer


def _profiled_training(directory: Path, **settings: Any) -> dict[str, Any]:
    """Two profiled training steps with these settings: trace events, truth, table of averages."""
    return _run(
        directory,
        f"sim.install(**{settings!r})\n"
        + _TRAIN
        + textwrap.dedent("""
        step()
        synchronize_all()
        with profile(activities=BOTH, profile_memory=True) as p:
            step(); step()
            synchronize_all()
        trace = events(p)
        averages = [
            {"name": e.key, "count": e.count, "self_us": e.self_device_time_total,
             "total_us": e.device_time_total, "cpu": str(e.device_type) == "DeviceType.CPU",
             "range": e.is_user_annotation}
            for e in p.key_averages()
        ]
        answer(events=trace, truth=sim.truth(1), averages=averages, counters=sim.counters(),
               document={k: v for k, v in json.load(open("trace.json")).items()
                         if k != "traceEvents"})
        """),
    )


def _of(events: list[dict[str, Any]], *categories: str) -> list[dict[str, Any]]:
    return [e for e in events if e.get("ph") == "X" and e.get("cat") in categories]


def _ns(document: dict[str, Any], us: float) -> int:
    return int(document["baseTimeNanoseconds"]) + round(us * 1000)


@pytest.fixture(scope="module")
def kernels(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """A training run whose plugin emits kernel events."""
    return _profiled_training(tmp_path_factory.mktemp("kernels"), lengths_us={"aten::mm": 321.5})


@pytest.fixture(scope="module")
def windows(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The same with driver events."""
    return _profiled_training(tmp_path_factory.mktemp("windows"), mode="driver")


# -- what the plugin emits --------------------------------------------------------------------


def test_kernel_events_are_the_exact_busy_times_of_the_core(kernels: dict[str, Any]) -> None:
    document = kernels["document"]
    shown = {
        e["args"]["correlation"]: (_ns(document, e["ts"]), round(e["dur"] * 1000), e["name"])
        for e in _of(kernels["events"], "kernel", "gpu_memcpy")
    }
    truth = {
        r["correlation"]: (r["start_ns"], r["duration_ns"], r["kernel"]) for r in kernels["truth"]
    }
    assert shown == truth
    assert {r["duration_ns"] for r in kernels["truth"] if r["operator"] == "aten::mm"} == {321_500}
    busy = sorted((r["start_ns"], r["end_ns"]) for r in kernels["truth"])
    assert all(end <= start for (_, end), (start, _) in pairwise(busy))


def test_each_operator_is_one_cpu_op_one_call_and_one_kernel(kernels: dict[str, Any]) -> None:
    launched = Counter(r["operator"] for r in kernels["truth"])
    for name, count in launched.items():
        row = next(a for a in kernels["averages"] if a["name"] == name and a["cpu"])
        length_us = sum(r["duration_ns"] for r in kernels["truth"] if r["operator"] == name) / 1000
        assert row["count"] == count
        # The total of a name is the sum of its kernels: nothing is counted twice by nesting.
        assert row["total_us"] == pytest.approx(length_us, abs=1e-3)
    assert len(_of(kernels["events"], "privateuse1_runtime")) == sum(launched.values())


def test_kernels_are_linked_with_the_operator_that_launched_them(kernels: dict[str, Any]) -> None:
    operators = {e["args"]["External id"]: e for e in _of(kernels["events"], "cpu_op")}
    calls = {e["args"]["correlation"]: e for e in _of(kernels["events"], "privateuse1_runtime")}
    for kernel in _of(kernels["events"], "kernel"):
        operator = operators[kernel["args"]["External id"]]
        call = calls[kernel["args"]["correlation"]]
        assert kernel["name"] == operator["name"].removeprefix("aten::") + "_neff"
        assert call["tid"] == operator["tid"]
        # torch reads the operator's time from another counter, some microseconds off at most.
        assert operator["ts"] - 5 <= call["ts"]
        assert call["ts"] + call["dur"] <= operator["ts"] + operator["dur"] + 5
        assert kernel["ts"] >= call["ts"] + call["dur"] - 0.001


def test_ranges_stand_on_the_device_too(kernels: dict[str, Any]) -> None:
    ranges = Counter(e["name"] for e in _of(kernels["events"], "gpu_user_annotation"))
    assert ranges["forward"] == 2
    assert ranges["Optimizer.step#SGD.step"] == 2


def test_driver_events_are_windows_from_queueing_to_completion(windows: dict[str, Any]) -> None:
    assert not _of(windows["events"], "kernel", "gpu_memcpy")
    document = windows["document"]
    shown = {
        e["args"]["nrt_sequence_id"]: (_ns(document, e["ts"]), round(e["dur"] * 1000), e["name"])
        for e in _of(windows["events"], "privateuse1_driver")
    }
    executions = [r for r in windows["truth"] if r["kind"] == "kernel"]
    assert shown == {
        r["sequence_id"]: (
            r["call_end_ns"],
            r["end_ns"] + 3_000 - r["call_end_ns"],
            r["operator"],
        )
        for r in executions
    }
    # What waits in the queue is in its window: the windows add up to far more than the work.
    assert sum(d for _, d, _ in shown.values()) > 2 * sum(r["duration_ns"] for r in executions)


def test_windows_carry_sequence_id_and_cache_key_and_their_stream(windows: dict[str, Any]) -> None:
    event = next(e for e in _of(windows["events"], "privateuse1_driver") if "addmm" in e["name"])
    assert (event["pid"], event["tid"]) == (0, 0)
    assert event["args"]["nrt_sequence_id"] >> 48 == 1
    assert event["args"]["neff_cache_key"].startswith("addmm--_[32]:Float_[8,16]:Float_[16,32]")


def test_mode_none_shows_the_host_alone(tmp_path: Path) -> None:
    run = _profiled_training(tmp_path, mode="none")
    categories = {e.get("cat") for e in run["events"]}
    assert "cpu_op" in categories
    assert not categories & {"kernel", "gpu_memcpy", "privateuse1_driver", "privateuse1_runtime"}
    assert all(a["total_us"] == 0 for a in run["averages"])
    assert len(run["truth"]) > 20, "the device worked all the same"


def test_without_the_plugin_torch_knows_the_device_but_no_session_starts(tmp_path: Path) -> None:
    run = _run(
        tmp_path,
        """
        sim.install(kineto=False)
        with profile(activities=BOTH) as p:
            (torch.ones(4, device="neuron") * 2).cpu()
        answer(counters=sim.counters(), events=events(p),
               supported=[str(a) for a in torch.profiler.supported_activities()])
        """,
    )
    assert run["counters"]["starts"] == 0
    assert not _of(run["events"], "kernel", "privateuse1_runtime")
    assert _of(run["events"], "cpu_op")
    assert any("NEURON" in a or "PrivateUse1" in a for a in run["supported"])


def test_a_profile_of_the_cpu_alone_opens_no_session(tmp_path: Path) -> None:
    run = _run(
        tmp_path,
        """
        sim.install()
        with profile(activities=BOTH):  # Kineto takes the plugin in with the first of these
            pass
        with profile(activities=[ProfilerActivity.CPU]) as p:
            (torch.ones(4, device="neuron") * 2).cpu()
        answer(counters=sim.counters(), events=events(p))
        """,
    )
    assert (run["counters"]["starts"], run["counters"]["refused"]) == (1, 1)
    assert not _of(run["events"], "kernel", "privateuse1_runtime")
    # Kineto counts these among the CPU's types, so the plugin is asked and has to refuse.
    assert {"privateuse1_runtime", "privateuse1_driver"} <= set(run["counters"]["last_types"])


def test_driver_events_break_torchs_own_table(tmp_path: Path) -> None:
    """Fact: they count as CPU rows of the operator's thread, so nothing has device time."""
    run = _run(
        tmp_path,
        "sim.install(mode='driver')\n"
        + _TRAIN
        + textwrap.dedent("""
        with profile(activities=BOTH) as p:
            step()
            synchronize_all()
        try:
            p.key_averages().table()
            error = ""
        except AssertionError as raised:
            error = str(raised)
        answer(error=error, device=sum(e.self_device_time_total for e in p.key_averages()
                                       if not e.is_user_annotation))
        """),
    )
    assert run["error"].startswith("Expected time_us == 0")
    assert run["device"] == 0


def test_torch_alone_calls_it_neuron(tmp_path: Path, kernels: dict[str, Any]) -> None:
    names = {e["args"]["labels"] for e in kernels["events"] if e.get("name") == "process_labels"}
    assert "NeuronCore 0 (simulated)" in names
    assert [d["name"] for d in kernels["document"]["deviceProperties"]] == [
        "NeuronCore (simulated)",
        "NeuronCore (simulated)",
    ]
    assert any(e.get("tid") == "__neuron_profiler__" for e in kernels["events"])


# -- operators --------------------------------------------------------------------------------


def test_plain_rms_norm_is_three_mul_one_add_one_rsqrt_one_mean(tmp_path: Path) -> None:
    run = _run(
        tmp_path,
        """
        lengths = {"aten::mul": 388.2, "aten::add": 434.6, "aten::rsqrt": 415.0,
                   "aten::mean": 340.8}
        sim.install(lengths_us=lengths)
        x = torch.randn(4, 512, dtype=torch.bfloat16).to("neuron")
        weight = torch.ones(512, device="neuron", dtype=torch.bfloat16)
        with profile(activities=BOTH) as p:
            y = x * torch.rsqrt((x * x).mean(-1, keepdim=True) + 1e-6) * weight
            torch.neuron.synchronize()
        x, weight = x.cpu(), weight.cpu()
        right = x * torch.rsqrt((x * x).mean(-1, keepdim=True) + 1e-6) * weight
        answer(
            launched=[r["operator"] for r in sim.truth(1)],
            averages={e.key: [e.count, e.device_time_total] for e in p.key_averages()
                      if e.key.startswith("aten::")},
            total=sum(e.self_device_time_total for e in p.key_averages()
                      if e.key.startswith("aten::")),
            same=torch.equal(y.cpu(), right),
        )
        """,
    )
    assert Counter(run["launched"]) == {
        "aten::mul": 3,
        "aten::add": 1,
        "aten::rsqrt": 1,
        "aten::mean": 1,
    }
    assert run["averages"] == {
        "aten::mul": [3, pytest.approx(1164.6)],
        "aten::add": [1, pytest.approx(434.6)],
        "aten::rsqrt": [1, pytest.approx(415.0)],
        "aten::mean": [1, pytest.approx(340.8)],
    }
    assert run["total"] == pytest.approx(2355.0)
    assert run["same"]


_LAUNCHES = {
    "x.sum()": ["sum"],
    "x.mean()": ["mean"],
    "torch.arange(5, device='neuron')": ["arange"],
    "x + 1": ["add"],
    "x.add_(1).mul_(x)": ["add_", "mul_"],
    "torch.addmm(x, x, x)": ["addmm"],
    "torch.zeros(3, device='neuron')": ["zero_"],
    "torch.full((3,), 2.0, device='neuron')": ["fill_"],
    "torch.nn.functional.linear(x, x)": ["mm"],
    "torch.nn.functional.mse_loss(x, x)": ["mse_loss"],
    "x.sort()": ["sort"],
    "torch.cat([x, x])": ["cat"],
    "x.clone()": ["Memcpy DtoD"],
    "x.t().reshape(16)": ["_copy_from"],
    "x.to(torch.bfloat16)": ["_copy_from"],
    "x.cpu()": ["Memcpy DtoH"],
    "host.to('neuron')": ["Memcpy HtoD"],
    "x[0, 0].item()": ["Memcpy DtoH"],
    "x[1:, :2].detach()": [],
    "torch.empty(3, device='neuron')": [],
    "torch._foreach_add_([x, x], 1.0)": ["add_", "add_"],
}


@pytest.fixture(scope="module")
def launches(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Each expression above, profiled on its own in one process."""
    return _run(
        tmp_path_factory.mktemp("operators"),
        f"expressions = {list(_LAUNCHES)!r}\n"
        + textwrap.dedent("""
        sim.install(kernel_us=20)
        result = {}
        for expression in expressions:
            host = torch.randn(4, 4)
            x = torch.randn(4, 4, device="neuron")
            torch.neuron.synchronize()
            with profile(activities=BOTH) as p:
                eval(expression)
                torch.neuron.synchronize()
            result[expression] = {
                "launched": [r["operator"] for r in sim.truth(sim.counters()["starts"])],
                "totals": [[e.key, e.device_time_total, e.self_device_time_total]
                           for e in p.key_averages() if e.key.startswith("aten::")],
            }
        answer(**result)
        """),
    )


@pytest.mark.parametrize("expression", _LAUNCHES)
def test_operators_launch_what_they_are(expression: str, launches: dict[str, Any]) -> None:
    result = launches[expression]
    launched = [name.removeprefix("aten::") for name in result["launched"]]
    assert launched == _LAUNCHES[expression]
    own = {name: (total, own) for name, total, own in result["totals"] if own}
    # What an operator launches is its own and counted once, however torch nests its overloads.
    assert all(total == pytest.approx(self_us) for total, self_us in own.values())
    assert sum(self_us for _, self_us in own.values()) == pytest.approx(20 * len(launched))


@pytest.mark.parametrize("optimizer", ["SGD", "AdamW"])
def test_training_gives_the_numbers_of_the_cpu(tmp_path: Path, optimizer: str) -> None:
    run = _run(
        tmp_path,
        f"""
        sim.install(kernel_us=5)
        def train(device):
            torch.manual_seed(3)
            net = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.ReLU(),
                                      torch.nn.Linear(32, 4)).to(device)
            optimizer = torch.optim.{optimizer}(net.parameters(), lr=0.05)
            x, y = torch.randn(8, 16).to(device), torch.randn(8, 4).to(device)
            losses = []
            for _ in range(4):
                loss = torch.nn.functional.mse_loss(net(x), y)
                loss.backward()
                optimizer.step()
                optimizer.zero_grad()
                losses.append(loss.item())
            return losses
        answer(cpu=train("cpu"), neuron=train("neuron"), launches=sim.counters()["launches"])
        """,
    )
    assert run["neuron"] == pytest.approx(run["cpu"], rel=1e-6)
    assert run["neuron"][-1] < run["neuron"][0]
    assert run["launches"] > 50


def test_what_gpu_scripts_use_works(tmp_path: Path) -> None:
    run = _run(
        tmp_path,
        """
        sim.install(kernel_us=20_000, cores=3)
        x = torch.randn(4, 4).pin_memory().to("neuron", non_blocking=True)
        with torch.autocast("neuron", torch.bfloat16):
            low = (x @ x).dtype
        start, end = (torch.neuron.Event(enable_timing=True) for _ in range(2))
        start.record()
        for _ in range(4):
            x = x * 1.5
        end.record()
        before = end.query()
        end.synchronize()
        y = torch.ones(2, device="neuron:2")
        with torch.neuron.device(1):
            inside = [torch.neuron.current_device(), torch.zeros(1, device="neuron").device.index]
        attention = torch.nn.functional.scaled_dot_product_attention(
            *(torch.randn(1, 2, 4, 8, device="neuron") for _ in range(3)))
        torch.save(x, "x.pt")
        answer(low=str(low), ms=start.elapsed_time(end), before=before, y=y.device.index,
               inside=inside, outside=torch.neuron.current_device(), shape=list(attention.shape),
               loaded=str(torch.load("x.pt").device), repr=repr(x)[:6],
               accelerator=str(torch.accelerator.current_accelerator()))
        """,
    )
    assert run["ms"] == pytest.approx(80, rel=0.25)
    assert not run["before"]
    assert (run["y"], run["inside"], run["outside"]) == (2, [1, 1], 0)
    assert run["shape"] == [1, 2, 4, 8]
    assert run["loaded"] == "neuron:0"
    assert run["accelerator"] == "neuron"


# -- time: what is lost, what leaks in, what overlaps ------------------------------------------


def test_work_in_flight_at_stop_is_lost_and_counted(tmp_path: Path) -> None:
    script = """
    sim.install(kernel_us=100_000, drop_unfinished={drop})
    x = torch.ones(4, device="neuron")
    torch.neuron.synchronize()
    torch.neuron.synchronize = lambda device=None: None  # torch would wait at the profile's end
    with profile(activities=BOTH) as p:
        for _ in range(5):
            x = x * 2
    answer(kernels=len([e for e in events(p) if e.get("cat") == "kernel"]),
           truth=[r["status"] for r in sim.truth(1)], counters=sim.counters())
    """
    lossy = _run(tmp_path, script.format(drop=True))
    assert lossy["kernels"] < 5
    assert lossy["truth"].count("unfinished") == 5 - lossy["kernels"]
    assert lossy["counters"]["unfinished"] == 5 - lossy["kernels"]
    patient = _run(tmp_path, script.format(drop=False))
    assert patient["kernels"] == 5
    assert patient["truth"] == ["recorded"] * 5


@pytest.mark.parametrize(
    ("wait", "kept", "lost"), [("pass", [0, 0], 9), ("synchronize_all()", [0, 0, *[1] * 9], 0)]
)
def test_torch_waits_for_the_current_core_only(
    tmp_path: Path, wait: str, kept: list[int], lost: int
) -> None:
    """Fact: of 11 kernels on two cores plain torch loses 9; synchronizing every core, none."""
    run = _run(
        tmp_path,
        f"""
        sim.install(cores=2, kernel_us=500, lengths_us={{"aten::sub": 2_000_000}})
        a, b = torch.ones(4, device="neuron:0"), torch.ones(4, device="neuron:1")
        synchronize_all()
        with profile(activities=BOTH) as p:
            a * 2, a * 2
            b = b - 1
            for _ in range(8):
                b = b + 1
            {wait}
        answer(kernels=[e["pid"] for e in events(p) if e.get("cat") == "kernel"],
               unfinished=sim.counters()["unfinished"], syncs=sim.counters()["syncs"])
        """,
    )
    assert sorted(run["kernels"]) == kept
    assert run["unfinished"] == lost
    assert run["syncs"] == ([2, 1] if wait == "pass" else [3, 2])


def test_work_queued_before_the_window_delays_it_and_is_not_in_it(tmp_path: Path) -> None:
    run = _run(
        tmp_path,
        """
        sim.install(kernel_us=700_000)
        x = torch.ones(4, device="neuron")
        torch.neuron.synchronize()
        with profile(activities=BOTH):  # the first profile of a process starts slowly
            pass
        x * 2, x * 2, x * 2
        with profile(activities=BOTH):
            x * 2
            torch.neuron.synchronize()
        answer(inside=sim.truth(2), outside=sim.truth(0)[-3:])
        """,
    )
    (own,) = run["inside"]
    assert own["start_ns"] == run["outside"][-1]["end_ns"], "it waited for what was in the way"
    assert own["start_ns"] > own["call_end_ns"] + 100_000_000
    assert {r["status"] for r in run["outside"]} == {"outside"}


def test_streams_are_ordered_in_themselves_and_overlap_copies_with_kernels(tmp_path: Path) -> None:
    run = _run(
        tmp_path,
        """
        sim.install(kernel_us=200_000, copy_us=200_000)
        x = torch.ones(4, device="neuron")
        host = torch.ones(4)
        torch.neuron.synchronize()
        side = torch.neuron.Stream()
        with profile(activities=BOTH) as p:
            y = x * 2
            with torch.neuron.stream(side):
                z = host.to("neuron", non_blocking=True)
            side_event = side.record_event()
            torch.neuron.current_stream().wait_event(side_event)
            x * 3
            torch.neuron.synchronize()
        answer(truth=sim.truth(1), tids=sorted({e["tid"] for e in events(p)
               if e.get("cat") in ("kernel", "gpu_memcpy")}), side=side.stream_id)
        """,
    )
    first, copy, last = run["truth"]
    assert (first["stream"], copy["stream"], last["stream"]) == (0, run["side"], 0)
    assert run["side"] != 0
    assert run["tids"] == [0, run["side"]]
    assert copy["start_ns"] < first["end_ns"], "a copy of another stream does not wait"
    assert last["start_ns"] >= copy["end_ns"], "a stream waits for an event"


def test_copies_to_the_host_block_until_they_are_done(tmp_path: Path) -> None:
    run = _run(
        tmp_path,
        """
        sim.install(kernel_us=300_000)
        x = torch.ones(4, device="neuron")
        torch.neuron.synchronize()
        before = time.perf_counter()
        y = x * 2
        queued = time.perf_counter()
        value = y.sum().item()
        read = time.perf_counter()
        answer(queued=queued - before, read=read - queued, value=value)
        """,
    )
    assert run["queued"] < 0.25
    assert run["queued"] + run["read"] > 0.6
    assert run["value"] == 8


def test_memory_is_reported_for_its_core(tmp_path: Path) -> None:
    run = _run(
        tmp_path,
        """
        sim.install()
        start = torch.neuron.memory_allocated(1)
        with profile(activities=BOTH, profile_memory=True) as p:
            a = torch.empty(1000, device="neuron:1")
            b = a * 2
            inside = torch.neuron.memory_allocated(1)
            del a, b
            torch.neuron.synchronize()
        memory = [e["args"] for e in events(p) if e.get("name") == "[memory]"]
        mul = [e for e in p.key_averages() if e.key == "aten::mul"][0]
        answer(memory=memory, held=inside - start, end=torch.neuron.memory_allocated(1) - start,
               peak=torch.neuron.max_memory_allocated(1), mul=mul.self_device_memory_usage,
               cpu=mul.self_cpu_memory_usage, reserved=torch.neuron.memory_reserved(1))
        """,
    )
    device = [m for m in run["memory"] if m["Device Type"] == 20]
    assert [m["Bytes"] for m in device] == [4000, 4000, -4000, -4000]
    assert {m["Device Id"] for m in device} == {1}
    assert max(m["Total Allocated"] for m in device) == 8000
    assert (run["held"], run["end"], run["peak"]) == (8000, 0, 8000)
    assert run["mul"] == 4000
    assert run["reserved"] >= 8000
    # The host's memory for computing the result is no business of the operator's.
    assert run["cpu"] == 0


def test_profiling_without_kineto_takes_times_from_the_queue(tmp_path: Path) -> None:
    run = _run(
        tmp_path,
        """
        sim.install(kernel_us=100_000)
        x = torch.ones(4, device="neuron")
        torch.neuron.synchronize()
        with torch.autograd.profiler.profile(use_device="neuron", use_kineto=False) as p:
            x * 2
            torch.neuron.synchronize()
        answer(us=[e.device_time_total for e in p.key_averages() if e.key == "aten::mul"])
        """,
    )
    # The stub's events are taken on the host's and the queue's clock around the operator.
    assert run["us"] == [pytest.approx(100_000, rel=0.3)]


def test_ids_of_a_range_that_outlives_a_profile_do_not_leak_into_the_next(tmp_path: Path) -> None:
    run = _run(
        tmp_path,
        """
        sim.install(kernel_us=20)
        x = torch.ones(4, device="neuron")
        p = profile(activities=BOTH)
        p.start()
        open_range = record_function("open")
        open_range.__enter__()
        x * 2
        p.stop()
        q = profile(activities=BOTH)
        q.start()
        x * 3
        torch.neuron.synchronize()
        q.stop()
        open_range.__exit__(None, None, None)
        trace = events(q)
        answer(ranges=[e["name"] for e in trace if e.get("cat") == "gpu_user_annotation"],
               names=[e["name"] for e in trace if e.get("cat") == "kernel"])
        """,
    )
    assert run["names"] == ["mul_neff"]
    assert run["ranges"] == []


# -- torch_neuronx, the runtime's files, neuron-explorer ---------------------------------------

_CAPTURE = (
    """
import torch_neuronx
from torch_neuronx.profiling import NeuronConfig, NeuronProfiler, ProfileMode

config = NeuronConfig(modes=[{modes}], profile_output_dir="out", {options})
"""
    + _TRAIN
    + """
step()
synchronize_all()
with profile(activities=BOTH, experimental_config=config, profile_memory=True,
             schedule=schedule(wait=1, warmup=1, active=2, repeat=1),
             on_trace_ready=NeuronProfiler(config).export_trace) as p:
    for number in range(4):
        step()
        if {second_core}:
            torch.ones(3, device="neuron:1") * 2
        synchronize_all()
        p.step()
answer(counters=sim.counters(), truth=sim.truth(1))
"""
)


def _captured(
    directory: Path,
    *,
    modes: str = "ProfileMode.RUNTIME",
    options: str = "",
    second_core: bool = False,
    **settings: Any,
) -> dict[str, Any]:
    script = _CAPTURE.format(modes=modes, options=options, second_core=second_core)
    return _run(directory, script, sim.environment(**settings))


def _explorer(directory: Path, *more: str, **switches: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["neuron-explorer", "view", "--data-path", "out", "--output-format", "json", *more],
        cwd=directory,
        env={**os.environ, "PATH": f"{sim.BIN}{os.pathsep}{os.environ['PATH']}", **switches},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def _session(directory: Path) -> Path:
    (process,) = (directory / "out").iterdir()
    assert process.name.startswith("i-simulated_pid_")
    (session,) = process.iterdir()
    assert session.name.isdigit()
    return session


def test_torch_loads_the_stub_by_itself_and_the_configuration_arrives(tmp_path: Path) -> None:
    run = _captured(tmp_path, options="capture_enabled_for_nc='0', correlate_device_time=True")
    config = dict(part.split(":", 1) for part in run["counters"]["last_config"].split(";"))
    assert config["profile_output_dir"] == "out"
    assert config["capture_enabled_for_nc"] == "0"
    assert config["correlate_device_time"] == "true"
    assert (config["runtime"], config["device"]) == ("true", "false")
    assert (run["counters"]["starts"], run["counters"]["stops"]) == (1, 1)


def test_the_older_neuron_config_has_no_correlate_device_time(tmp_path: Path) -> None:
    run = _run(
        tmp_path,
        """
        import inspect
        from torch_neuronx.profiling import NeuronConfig
        answer(names=list(inspect.signature(NeuronConfig).parameters))
        """,
        {**sim.environment(), "NEURON_SIM_CORRELATE": "0"},
    )
    assert run["names"] == [
        "modes",
        "max_events_per_nc",
        "capture_enabled_for_nc",
        "profile_output_dir",
        "neff_cache_dir",
        "precache_node_info",
    ]


def test_without_the_stub_there_is_no_torch_neuronx(tmp_path: Path) -> None:
    run = _run(
        tmp_path,
        """
        import importlib.util
        sim.install()
        before = importlib.util.find_spec("torch_neuronx") is not None
        sim.install(torch_neuronx=True)
        import torch_neuronx
        torch_neuronx.synchronize()
        answer(before=before, simulated=torch_neuronx.__version__)
        """,
    )
    assert run == {"before": False, "simulated": "0.0+simulated"}


def test_settings_reach_a_child_process(tmp_path: Path) -> None:
    run = _run(
        tmp_path,
        "answer(**sim.settings(), cores_seen=torch.neuron.device_count())",
        sim.environment(
            mode="driver",
            cores=5,
            drop_unfinished=False,
            kernel_us=12.5,
            lengths_us={"aten::mul": 3.0, "Memcpy HtoD": 4.5},
        ),
    )
    assert (run["mode"], run["cores"], run["cores_seen"]) == ("driver", 5, 5)
    assert run["drop_unfinished"] is False
    assert run["kernel_us"] == 12.5
    assert run["lengths_us"] == {"aten::mul": 3.0, "Memcpy HtoD": 4.5}


def test_a_capture_has_the_runtimes_layout_and_says_it_is_simulated(tmp_path: Path) -> None:
    _captured(
        tmp_path,
        modes="ProfileMode.RUNTIME, ProfileMode.CPU_UTIL, ProfileMode.HOST_MEMORY, "
        "ProfileMode.DEVICE",
    )
    session = _session(tmp_path)
    assert {p.name for p in session.iterdir()} == {
        "ntrace.pb",
        "trace_info.pb",
        "cpu_util.pb",
        "host_mem.pb",
        "profile_nc_0_session_1.ntff",
        "profile_nc_1_session_1.ntff",
        "trace.json",
    }
    assert _explorer(tmp_path).returncode == 0
    profile = tmp_path / "system_profile.json"
    for path in (*session.iterdir(), profile):
        assert "simulated" in path.read_text(), path.name
    rows = json.loads(profile.read_text())
    assert len(rows["mem_usage"]) == 2
    assert [r["cpu_id"] for r in rows["cpu_util"]] == ["average"]
    assert {r["hbm_idx"] for r in rows["device_mem_usage"]} == {0, 1}


@pytest.mark.parametrize("mode", ["driver", "none"])
@pytest.mark.parametrize("lnc", [1, 2])
def test_the_project_reads_back_the_simulators_own_truth(
    tmp_path: Path, mode: str, lnc: int
) -> None:
    run = _captured(tmp_path, mode=mode, lnc=lnc, second_core=True)
    assert _explorer(tmp_path).returncode == 0
    session = _session(tmp_path)
    (tmp_path / "system_profile.json").rename(session / "system_profile.json")
    trace = neuron_tb.load(session)
    executions = trace.executions
    measured = executions.source == Source.MEASURED
    index = [trace.devices[d].index for d in executions.device[measured].tolist()]
    loaded = sorted(
        zip(
            index,
            executions.start_ns[measured].tolist(),
            executions.duration_ns[measured].tolist(),
            (trace.strings[n] for n in _operator_names(trace, measured)),
            strict=True,
        )
    )
    truth = sorted(
        (r["core"], r["start_ns"], r["duration_ns"], r["operator"])
        for r in run["truth"]
        if r["kind"] == "kernel"
    )
    assert {core for core, *_ in truth} == {0, 1}
    assert loaded == truth
    windows = (executions.source == Source.WINDOW).sum()
    assert windows == (len(truth) if mode == "driver" else 0)
    assert executions.counted.sum() == len(truth), "each execution is counted once"
    steps = [trace.steps.label(s) for s in sorted(set(executions.step[measured].tolist()))]
    assert steps == ["2", "3"]


def _operator_names(trace: Any, rows: Any) -> list[int]:
    operator = trace.executions.operator[rows]
    assert (operator >= 0).all(), "every execution is linked with its operator"
    names: list[int] = trace.slices.name[operator].tolist()
    return names


def test_kernel_events_alone_give_the_truth_too(tmp_path: Path) -> None:
    run = _profiled_training(tmp_path)
    trace = neuron_tb.load(tmp_path / "trace.json")
    executions = trace.executions
    assert (executions.source == Source.MEASURED).all()
    assert sorted(executions.duration_ns.tolist()) == sorted(r["duration_ns"] for r in run["truth"])
    assert [d.family for d in trace.devices] == ["neuron"]
    operators = Counter(trace.strings[n] for n in _operator_names(trace, slice(None)))
    expected = Counter(
        "aten::_copy_from" if r["kind"] != "kernel" else r["operator"] for r in run["truth"]
    )
    assert operators == expected


def test_only_captured_cores_are_in_the_files_and_dropped_events_are_told(tmp_path: Path) -> None:
    _captured(tmp_path, options="capture_enabled_for_nc='1', max_events_per_nc=3", second_core=True)
    assert _explorer(tmp_path).returncode == 0
    document = json.loads((tmp_path / "system_profile.json").read_text())
    rows = [r for r in document["trace_event"] if r["name"] == "nc_exec_running"]
    assert {r["nc_idx"] for r in rows} == {1}
    assert len(rows) == 3
    (warning,) = document["warnings"]
    assert "dropped" in warning["message"]


def test_without_an_output_directory_the_runtime_writes_nothing(kernels: dict[str, Any]) -> None:
    assert kernels["counters"]["last_directory"] == ""


def test_unfinished_work_has_a_call_and_no_hardware_row(tmp_path: Path) -> None:
    _run(
        tmp_path,
        """
        from torch_neuronx.profiling import NeuronConfig, ProfileMode
        config = NeuronConfig(modes=[ProfileMode.RUNTIME], profile_output_dir="out")
        x = torch.ones(4, device="neuron:1")
        synchronize_all()
        with profile(activities=BOTH, experimental_config=config):
            for _ in range(6):
                x * 2
        answer()
        """,
        sim.environment(kernel_us=500_000),
    )
    assert _explorer(tmp_path).returncode == 0
    document = json.loads((tmp_path / "system_profile.json").read_text())
    names = Counter(r["name"] for r in document["trace_event"])
    assert names["nrta_execute_schedule"] == 6
    assert names["nc_exec_running"] < 6


def test_neuron_explorer_may_go_on_serving_fail_or_refuse_json(tmp_path: Path) -> None:
    _captured(tmp_path, mode="driver")
    failed = _explorer(tmp_path, NEURON_SIM_EXPLORER_FAIL="1")
    assert failed.returncode == 1
    refused = _explorer(tmp_path, NEURON_SIM_EXPLORER_NO_JSON="1")
    assert refused.returncode == 2
    assert not (tmp_path / "system_profile.json").exists()
    switches = {"NEURON_SIM_EXPLORER_SPELLING": "old", "NEURON_SIM_EXPLORER_FRAMEWORK": "0"}
    old = _explorer(tmp_path, "--output-file", "old.json", **switches)
    assert old.returncode == 0
    document = json.loads((tmp_path / "old.json").read_text())
    assert {r["lnc_idx"] for r in document["trace_events"]} == {"0"}
    assert not any(r.get("type") == 99999 for r in document["trace_events"])
    with _serving(tmp_path) as process:
        assert process.stdout is not None
        said = process.stdout.readline() + process.stdout.readline()
        assert "http://localhost:3001/" in said
        assert json.loads((tmp_path / "system_profile.json").read_text())["trace_event"]
        assert process.poll() is None, "it goes on serving"


@contextmanager
def _serving(directory: Path) -> Iterator[subprocess.Popen[str]]:
    """A neuron-explorer that does not end by itself; it is ended with the block."""
    process = subprocess.Popen(
        [str(sim.BIN / "neuron-explorer"), "view", "-d", "out", "--output-format", "json"],
        cwd=directory,
        env={**os.environ, "NEURON_SIM_EXPLORER_SERVE": "1"},
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def test_neuron_explorer_reads_only_the_simulators_files(tmp_path: Path) -> None:
    directory = tmp_path / "out" / "i-1_pid_2" / "3"
    directory.mkdir(parents=True)
    for name in ("ntrace.pb", "trace_info.pb"):
        (directory / name).write_text("\n\x05abc\n")
    done = _explorer(tmp_path)
    assert done.returncode != 0
    assert "only AWS's neuron-explorer reads it" in done.stderr
    assert _explorer(directory).returncode == 1, "nothing there"


def test_one_build_is_shared_and_kept(tmp_path: Path) -> None:
    run = _run(
        tmp_path,
        """
        started = time.perf_counter()
        sim.install()
        import _neuron_sim
        answer(seconds=time.perf_counter() - started, file=_neuron_sim.__file__,
               version=torch.__version__)
        """,
    )
    assert f"torch-{run['version']}" in run["file"]
    assert run["seconds"] < 10
