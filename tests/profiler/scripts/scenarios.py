"""Scenarios that need a process of their own: ``scenarios.py NAME``. The last line is JSON."""

from __future__ import annotations

import collections
import gzip
import json
import subprocess
import sys
import time
from pathlib import Path

import torch
from torch._C._profiler import _ExperimentalConfig
from torch.profiler import ProfilerActivity, profile, record_function, schedule

CPU, CUDA = ProfilerActivity.CPU, ProfilerActivity.CUDA


def simulator():
    from neuron_tb.simulation.device import sim

    return sim


def work(device="neuron"):
    with record_function("forward"):
        x = torch.ones(16, 16, device=device)
        return torch.relu(x @ x)


def categories(path):
    opened = gzip.open if str(path).endswith(".gz") else open
    with opened(path, "rt") as file:
        return collections.Counter(e.get("cat") for e in json.load(file)["traceEvents"])


def lost_on_two_cores():
    sim = simulator()
    x0, x1 = (torch.ones(8, 8, device=f"neuron:{i}") for i in range(2))
    torch.neuron.synchronize(0)
    torch.neuron.synchronize(1)
    sim.configure(kernel_us=5_000)
    with profile(activities=[CPU, ProfilerActivity.PrivateUse1]) as recorded:
        torch.neuron.set_device(1)
        for _ in range(9):
            torch.relu(x1)
        torch.neuron.set_device(0)
        for _ in range(2):
            torch.relu(x0)
    recorded.export_chrome_trace("t.json")
    return {"kernels": categories("t.json")["kernel"], "unfinished": sim.counters()["unfinished"]}


def queued_before():
    x = torch.ones(8, 8, device="neuron")
    with profile(activities=[CPU, ProfilerActivity.PrivateUse1]):
        # The first session takes seconds, in which any queue runs empty.
        torch.relu(x)
    simulator().configure(kernel_us=50_000)
    for _ in range(10):
        torch.relu(x)
    with profile(activities=[CPU, ProfilerActivity.PrivateUse1]) as recorded:
        torch.tanh(x)
    recorded.export_chrome_trace("t.json")
    events = json.loads(Path("t.json").read_text())["traceEvents"]
    (kernel,) = [e for e in events if e.get("cat") == "kernel" and "tanh" in e["name"]]
    (launch,) = [e for e in events if e.get("name") == "aten::tanh" and e["cat"] == "cpu_op"]
    return {"delay_ms": (kernel["ts"] - launch["ts"]) / 1000}


def directory_of(text, custom=None):
    """Profile with the Neuron Runtime's files at ``text``."""
    config = None
    if custom:
        config = _ExperimentalConfig(custom_profiler_config=f"profile_output_dir:{text}")
    handler = torch.profiler.tensorboard_trace_handler(text)
    with profile(activities=[CPU, CUDA], on_trace_ready=handler, experimental_config=config):
        work()
    counters = simulator().counters()
    wanted = Path(text) if custom else Path(text) / "neuron_profile"
    return {
        "config": counters["last_config"],
        "directory": counters["last_directory"],
        "reached": [str(p) for p in wanted.glob("*_pid_*/*/ntrace.pb")],
    }


def averages():
    sim = simulator()
    net = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU()).to("neuron")
    x = torch.ones(4, 8, device="neuron")
    net(x).sum().backward()
    torch.neuron.synchronize()
    activities = [CPU, ProfilerActivity.PrivateUse1]
    with profile(activities=activities, profile_memory=True) as recorded:
        with record_function("forward"):
            y = net(x)
        y.sum().backward()
        y.detach().cpu()
    rows = recorded.key_averages()
    try:
        table = rows.table(sort_by="self_cuda_time_total")
    except AssertionError as error:
        table = f"AssertionError: {error}"
    host = [e for e in recorded.events() if "CPU" in str(e.device_type)]
    tree = [(e.name, e.cpu_parent.name if e.cpu_parent else None) for e in host]
    truth = [t for t in sim.truth() if t["status"] == "recorded"]
    recorded.export_chrome_trace("t.json")
    return {
        "table": table,
        "tree": sorted(map(str, tree)),
        "cpu": {
            e.key: [e.count, e.cpu_memory_usage, e.device_memory_usage]
            for e in rows
            if e.cpu_time_total
        },
        "self_cpu_total": sum(e.self_cpu_time_total for e in rows),
        "span_us": max(e.time_range.end for e in recorded.events()),
        "device": {e.key: e.device_time_total for e in rows if e.device_time_total},
        "average": {
            e.key: e.device_time for e in rows if e.device_time and "CPU" not in str(e.device_type)
        },
        "windows": {e.key: getattr(e, "self_neuron_window", 0) for e in rows if e.cpu_time_total},
        "launches": len(truth),
        "categories": categories("t.json"),
    }


def nothing_recorded(steps, wait):
    plan = schedule(wait=int(wait), warmup=1, active=1)
    with profile(activities=[CPU, CUDA], schedule=plan) as recorded:
        for _ in range(int(steps)):
            recorded.step()
    return {}


def quiet_until_a_profile():
    import neuron_tb  # noqa: F401

    work("cpu")
    return {}


def cpu_only():
    """On plain torch: what a profile gives, and where its methods come from."""
    with profile(activities=[CPU, CUDA], record_shapes=True) as recorded:
        work("cpu")
    recorded.export_chrome_trace("t.json")
    try:
        recorded.export_chrome_trace("u.json")
        second = "exported"
    except RuntimeError as error:
        second = str(error)
    averages = recorded.key_averages()
    return {
        "kinds": [type(averages).__name__, type(averages[0]).__name__],
        "inner": type(recorded.profiler).__name__,
        "config": recorded.experimental_config is None,
        "second": second,
        "columns": averages.table().splitlines()[1].split(),
        "names": hasattr(averages[0], "self_cuda_time_total"),
        "activities": sorted(a.name for a in recorded.activities),
    }


def configuration():
    config = simulator()
    with profile(activities=[CPU, CUDA]):
        work()
    ours = config.counters()["last_config"]
    from torch_neuronx.profiling import NeuronConfig, ProfileMode

    users = NeuronConfig(modes=[ProfileMode.CPU_UTIL], profile_output_dir="mine")
    with profile(activities=[CPU, CUDA], experimental_config=users) as recorded:
        work()
    theirs = config.counters()["last_config"]
    kept = recorded.experimental_config is users
    other = _ExperimentalConfig(capture_overload_names=True)
    with profile(activities=[CPU, CUDA], experimental_config=other) as recorded:
        work()
    completed = config.counters()["last_config"]
    overloads = {e.overload_name for e in recorded.events()}
    return {
        "ours": ours,
        "theirs": theirs,
        "kept": kept,
        "completed": completed,
        "untouched": "runtime" not in str(other.__getstate__()),
        "overloads": "Tensor" in overloads or len(overloads) > 1,
    }


def a_cpu_profile_opens_no_session():
    with profile(activities=[CPU]):
        work()
    return simulator().counters()["starts"]


def door_one():
    import inspect

    import neuron_tb.profiler as ours

    before = dict(vars(torch.profiler.profiler._KinetoProfile))
    with ours.profile(activities=[CPU, CUDA], neuron={"quiet": True}) as recorded:
        work()
    for name in ("a.json", "b.json"):
        recorded.export_chrome_trace(name)
    with ours.profile(activities=[CPU, CUDA], neuron=False) as plain:
        work()
    torchs = inspect.signature(torch.profiler.profile.__init__).parameters
    parameters = inspect.signature(ours.profile.__init__).parameters
    same = [n for n in torch.profiler.__all__ if n not in ("profile", "tensorboard_trace_handler")]
    return {
        "kernels": [categories("a.json")["kernel"], categories("b.json")["kernel"]],
        "plain": sum(e.device_time_total for e in plain.key_averages()),
        "sorted": "Self NEURON" in recorded.key_averages().table(sort_by="self_neuron_time_total"),
        "untouched": before == dict(vars(torch.profiler.profiler._KinetoProfile)),
        "subclass": issubclass(ours.profile, torch.profiler.profile),
        "parameters": list(parameters) == [*torchs, "neuron"],
        "missing": [n for n in torch.profiler.__all__ if not hasattr(ours, n)],
        "same": all(getattr(ours, n) is getattr(torch.profiler, n) for n in same),
    }


def both_doors():
    import neuron_tb
    import neuron_tb.profiler as ours

    with neuron_tb.enabled():
        with ours.profile(activities=[CPU, CUDA]) as recorded:
            work()
        syncs = sum(simulator().counters()["syncs"])
    recorded.export_chrome_trace("a.json")
    return {"kernels": categories("a.json")["kernel"], "syncs": syncs}


def children():
    """A child process of a script profiles too."""
    code = f"import sys; sys.argv = ['x', 'kernels']; exec(open({__file__!r}).read())"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    return json.loads(done.stdout.strip().splitlines()[-1])


def kernels(*arguments):
    with profile(activities=[CPU, CUDA]) as recorded:
        work()
    recorded.export_chrome_trace("t.json")
    return {"kernels": categories("t.json")["kernel"], "arguments": arguments, "name": __name__}


def handler(formats, fail=None):
    from neuron_tb.profiler import conversion, tensorboard_trace_handler

    if fail:
        conversion.sys.executable = fail
    plan = schedule(wait=0, warmup=1, active=2, repeat=1)
    ready = tensorboard_trace_handler("logs", formats=[f for f in formats.split(",") if f])
    with profile(activities=[CPU, CUDA], schedule=plan, on_trace_ready=ready) as recorded:
        for _ in range(4):
            work()
            recorded.step()
    begin = time.monotonic()
    conversion.wait_for_all()
    waited = time.monotonic() - begin
    files = sorted(
        str(p.relative_to("logs"))
        for p in Path("logs").rglob("*")
        if p.is_file() and "neuron_profile" not in p.parts
    )
    return {"files": files, "waited": waited}


def missing_part():
    import neuron_tb

    del torch.profiler.profiler._KinetoProfile.toggle_collection_dynamic
    neuron_tb.enable()
    import neuron_tb.profiler as ours

    with ours.profile(activities=[CPU, CUDA]) as recorded:
        work()
    recorded.export_chrome_trace("t.json")
    wrapped = hasattr(torch.profiler.profile.__init__, "__wrapped__")
    return {"kernels": categories("t.json")["kernel"], "changed": wrapped}


def main():
    _, name, *arguments = sys.argv
    sys.stdout.write(json.dumps(globals()[name](*arguments)) + "\n")


if __name__ == "__main__":
    main()
