"""What real projects write, once on plain torch and once with the drop-in; prints JSON.

Names are imported before the drop-in is switched on.
"""

from __future__ import annotations

import collections
import contextlib
import gzip
import inspect
import json
import sys
import tempfile
import warnings
from pathlib import Path
from typing import Union

import torch
from torch.cuda.nvtx import range_push
from torch.profiler import (
    ExecutionTraceObserver,
    ProfilerActivity,
    profile,
    record_function,
    schedule,
    tensorboard_trace_handler,
)

CPU, CUDA, XPU = ProfilerActivity.CPU, ProfilerActivity.CUDA, ProfilerActivity.XPU
OPERATORS = 3


def work():
    """Three kernels."""
    x = torch.ones(16, 16, device="neuron")
    with record_function("forward"):
        return torch.relu(x @ x)


def kernels_in(path):
    opened = gzip.open if str(path).endswith(".gz") else open
    with opened(path, "rt") as file:
        events = json.load(file)["traceEvents"]
    return collections.Counter(e.get("cat") for e in events)["kernel"]


def kernels(recorded):
    path = tempfile.mktemp(suffix=".json")
    recorded.export_chrome_trace(path)
    return kernels_in(path)


def with_activities(activities, **more):
    with profile(activities=activities, **more) as recorded:
        work()
    return recorded


def cpu_cuda(place):
    return kernels(with_activities([CPU, CUDA]))


def cpu_cuda_xpu(place):
    return kernels(with_activities({CPU, CUDA, XPU}))


def cuda_xpu_beside_privateuse1(place):
    return kernels(with_activities([CPU, CUDA, XPU, ProfilerActivity.PrivateUse1]))


def only_cuda(place):
    return kernels(with_activities([CUDA]))


def a_generator(place):
    return kernels(with_activities(a for a in (CPU, CUDA)))


def a_filter(place):
    recorded = with_activities([CPU, {CUDA: ["CONCURRENT_KERNEL", "CUDA_RUNTIME", "OVERHEAD"]}])
    return kernels(recorded)


def no_activities(place):
    with profile() as recorded:
        work()
    return kernels(recorded)


def use_cuda(place):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with profile(use_cuda=True) as recorded:
            work()
    return kernels(recorded)


def cpu_when_cuda_is_absent(place):
    return kernels(with_activities([CPU] + ([CUDA] if torch.cuda.is_available() else [])))


def the_name_neuron(place):
    return kernels(with_activities([CPU, ProfilerActivity.NEURON]))


def legacy_use_cuda(place):
    with torch.autograd.profiler.profile(use_cuda=True) as recorded:
        work()
    return sum(e.device_time_total for e in recorded.key_averages() if e.key == "aten::relu")


def legacy_use_device(place):
    with torch.autograd.profiler.profile(use_device="cuda") as recorded:
        work()
    return sum(e.device_time_total for e in recorded.key_averages() if e.key == "aten::relu")


def tensorboard_handler(place):
    handler = tensorboard_trace_handler(str(place / "tb"), worker_name="w", use_gzip=True)
    with_activities([CPU, CUDA], on_trace_ready=handler)
    names = sorted(p.name for p in (place / "tb").iterdir())
    traces = [n for n in names if n.endswith(".pt.trace.json.gz")]
    manifests = [json.loads((place / "tb" / n).read_text()) for n in names if "neuron.json" in n]
    return {
        "names": names,
        "kernels": kernels_in(place / "tb" / traces[0]),
        "sessions": manifests[0]["neuron_sessions"] if manifests else None,
        "file": manifests[0]["file"] if manifests else None,
        "traces": traces,
    }


def own_handler(place):
    found = {}

    def ready(recorded):
        recorded.export_chrome_trace(str(place / f"rank-0.{recorded.step_num}.json.gz"))
        found[recorded.step_num] = recorded.key_averages().table(sort_by="self_cuda_time_total")

    plan = schedule(wait=1, warmup=1, active=2, repeat=2, skip_first=1)
    with profile(activities=[CPU, CUDA], schedule=plan, on_trace_ready=ready) as recorded:
        for _ in range(10):
            work()
            recorded.step()
    manifest = place / "rank-0.5.neuron.json"
    return {
        "steps": sorted(found),
        "kernels": kernels_in(place / "rank-0.5.json.gz"),
        "columns": "Self NEURON" in found[5],
        "manifest": json.loads(manifest.read_text())["steps"] if manifest.exists() else None,
    }


SORT_KEYS = [
    *("cpu_time", "cpu_time_total", "count", "cuda_time", "cuda_time_total"),
    *("self_cuda_time_total", "cuda_memory_usage", "self_cuda_memory_usage"),
    *("neuron_time", "neuron_time_total", "self_neuron_time_total", "neuron_memory_usage"),
    *("self_neuron_memory_usage", "device_time_total", "xpu_time_total", "privateuse1_time_total"),
]


def sort_keys(place):
    averages = with_activities([CPU, CUDA], profile_memory=True).key_averages()
    failed = []
    for key in SORT_KEYS:
        try:
            averages.table(sort_by=key)
        except AttributeError:
            failed.append(key)
    return failed


def names_of_times(place):
    recorded = with_activities([CPU, CUDA], profile_memory=True)
    failed, values = [], {}
    names = ("{}_time", "{}_time_total", "self_{}_time_total", "{}_memory_usage")
    names += ("self_{}_memory_usage", "{}_time_str", "{}_time_total_str", "self_{}_time_total_str")
    for kind, events in (("event", recorded.events()), ("average", recorded.key_averages())):
        (relu,) = [e for e in events if e.key == "aten::relu" and e.cpu_time_total]
        for device in ("cuda", "neuron"):
            for name in names:
                try:
                    values[kind, device, name] = getattr(relu, name.format(device))
                    assert values[kind, device, name] == getattr(relu, name.format("device"))
                except AttributeError:
                    failed.append(f"{kind}.{name.format(device)}")
    total = sum(getattr(e, "self_cuda_time_total", 0) for e in recorded.key_averages())
    return {"failed": failed, "total": total}


def stacks(place):
    recorded = with_activities([CPU, CUDA], with_stack=True)
    lines = {}
    for metric in (
        "self_cpu_time_total",
        "self_cuda_time_total",
        "self_device_time_total",
        "self_neuron_time_total",
    ):
        path = place / f"{metric}.txt"
        try:
            recorded.export_stacks(str(path), metric=metric)
            lines[metric] = len(path.read_text().splitlines())
        except ValueError:
            lines[metric] = None
    return lines


def kineto_results(place):
    recorded = with_activities([CPU, CUDA])
    tree = recorded.profiler.kineto_results.experimental_event_tree()
    device = [
        e
        for e in recorded.events()
        if "PrivateUse1" in repr(e.device_type).replace("NEURON", "PrivateUse1")
    ]
    return {"tree": len(tree), "device": len(device)}


def start_step_stop(place):
    plan = schedule(wait=0, warmup=1, active=2, repeat=1)
    counted = []
    recorded = profile(
        activities=[CPU, CUDA], schedule=plan, on_trace_ready=lambda p: counted.append(kernels(p))
    )
    recorded.start()
    for _ in range(4):
        work()
        recorded.step()
    recorded.stop()
    return counted


def resumed_step_number(place):
    counted = []
    plan = schedule(wait=98, warmup=1, active=1)
    with profile(
        activities=[CPU, CUDA], schedule=plan, on_trace_ready=lambda p: counted.append(kernels(p))
    ) as recorded:
        recorded.step_num = 97
        for _ in range(4):
            recorded.step()
            work()
    return counted


def assigned_later(place):
    counted = []
    recorded = profile(activities=[CPU, CUDA])
    recorded.schedule = schedule(wait=0, warmup=1, active=1)
    recorded.current_action = recorded.schedule(0)
    recorded._prev_schedule_action = recorded.current_action
    recorded.on_trace_ready = tensorboard_trace_handler(str(place / "later"))
    with recorded:
        recorded.step()
        work()
        recorded.step()
    counted += [kernels_in(p) for p in sorted((place / "later").glob("*.pt.trace.json"))]
    below = (place / "later" / "neuron_profile").is_dir()
    return {"kernels": counted, "neuron_files_below": below}


def signature_filter(place):
    accepted = inspect.signature(profile.__init__).parameters
    wanted = {"schedule": None, "record_shapes": True, "with_stack": True, "profile_memory": True}
    kept = {name: value for name, value in wanted.items() if name in accepted}
    recorded = torch.profiler.profile(**kept)
    return [sorted(kept), recorded.record_shapes]


def class_identity(place):
    annotated = Union[torch.profiler.profile, contextlib.nullcontext]  # noqa: UP007

    class Own(profile):
        pass

    recorded = Own(activities=[CPU, CUDA])
    with recorded:
        work()
    return [
        isinstance(recorded, torch.profiler.profile),
        isinstance(torch.profiler.profile, type),
        profile is torch.profiler.profile,
        annotated.__args__[0] is profile,
        kernels(recorded),
    ]


def execution_trace(place):
    path = place / "et.json"
    observer = ExecutionTraceObserver().register_callback(str(path))
    recorded = with_activities([CPU, CUDA], execution_trace_observer=observer)
    return [kernels(recorded), path.stat().st_size > 0]


def exported_twice(place):
    recorded = with_activities([CPU, CUDA])
    first, second, third = (place / n for n in ("a.json", "b.json", "c.json.gz"))
    for path in (first, second, third):
        recorded.export_chrome_trace(str(path))
    same = first.read_bytes() == second.read_bytes() == gzip.decompress(third.read_bytes())
    return [kernels_in(first), same]


def a_path_object(place):
    with_activities([CPU, CUDA]).export_chrome_trace(place / "path.json")
    return kernels_in(place / "path.json")


def toggling(place):
    with profile(activities=[CPU, CUDA]) as recorded:
        work()
        recorded.toggle_collection_dynamic(False, [CUDA])
        work()
    return kernels(recorded)


def accumulated_events(place):
    plan = schedule(wait=0, warmup=1, active=1, repeat=2)
    with profile(activities=[CPU, CUDA], schedule=plan, acc_events=True) as recorded:
        for _ in range(4):
            work()
            recorded.step()
    averages = {e.key: e for e in recorded.key_averages() if e.device_time_total}
    return averages["aten::relu"].count if "aten::relu" in averages else 0


def cuda_synchronize(place):
    torch.cuda.synchronize()
    torch.cuda.synchronize(0)
    torch.cuda.synchronize(torch.device("neuron", 1))
    return True


def cuda_event(place):
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begin.record()
    work()
    end.record()
    end.synchronize()
    return begin.elapsed_time(end)


def nvtx(place):
    with profile(activities=[CPU, CUDA]) as recorded:
        range_push("outer")
        with torch.cuda.nvtx.range("inner {}", 1):
            work()
        torch.cuda.nvtx.mark("point")
        depth = torch.cuda.nvtx.range_pop()
        handle = torch.cuda.nvtx.range_start("across")
        torch.cuda.nvtx.range_end(handle)
    names = {e.key for e in recorded.key_averages()}
    return [depth, sorted(names & {"outer", "inner 1", "point", "across"})]


def cuda_profiler(place):
    torch.cuda.profiler.start()
    work()
    torch.cuda.profiler.stop()
    torch.cuda.check_error(torch.cuda.cudart().cudaProfilerStart())
    work()
    torch.cuda.check_error(torch.cuda.cudart().cudaProfilerStop())
    return [kernels_in(p) for p in sorted(Path("neuron_profile").glob("*.pt.trace.json"))]


def cuda_profiler_within_a_profile(place):
    with profile(activities=[CPU, CUDA]) as recorded:
        torch.cuda.profiler.start()
        work()
        torch.cuda.profiler.stop()
    return kernels(recorded)


def emit_nvtx(place):
    with torch.autograd.profiler.emit_nvtx(record_shapes=True):
        work()
    return True


def memory_history(place):
    torch.cuda.memory._record_memory_history(max_entries=10)
    torch.cuda.memory._dump_snapshot(str(place / "snapshot.pickle"))
    torch.cuda.memory._snapshot()
    return (place / "snapshot.pickle").exists()


def peak_memory(place):
    torch.cuda.reset_peak_memory_stats()
    torch.cuda.memory_allocated()
    torch.cuda.max_memory_allocated()
    torch.cuda.empty_cache()
    return True


def torch_accelerator(place):
    torch.accelerator.synchronize()
    torch.Event(device="neuron").record()
    return kernels(with_activities([CPU, CUDA]))


SHIMMED = [cuda_synchronize, cuda_event, nvtx, cuda_profiler, cuda_profiler_within_a_profile]
SHIMMED += [emit_nvtx, memory_history, peak_memory]
ALWAYS = [cpu_when_cuda_is_absent]
NEEDS_NEURON_NAME = [the_name_neuron]
ORDINARY = [
    *(cpu_cuda, cpu_cuda_xpu, cuda_xpu_beside_privateuse1, only_cuda, a_generator, a_filter),
    *(no_activities, use_cuda, cpu_when_cuda_is_absent, the_name_neuron, legacy_use_cuda),
    *(legacy_use_device, tensorboard_handler, own_handler, sort_keys, names_of_times, stacks),
    *(kineto_results, start_step_stop, resumed_step_number, assigned_later, signature_filter),
    *(class_identity, execution_trace, exported_twice, a_path_object, toggling),
    *(accumulated_events, torch_accelerator),
]


def attempt(function, place):
    place.mkdir(parents=True)
    try:
        return function(place)
    except Exception as error:
        return f"{type(error).__name__}: {error}"


def main():
    import neuron_tb

    base = Path.cwd()
    before = snapshot()
    results = {"plain": {}, "drop-in": {}, "always": {}, "shims": {}}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for function in [*ORDINARY, *SHIMMED]:
            name = function.__name__
            results["plain"][name] = attempt(function, base / "plain" / name)
        neuron_tb.enable()
        for function in ORDINARY:
            name = function.__name__
            results["drop-in"][name] = attempt(function, base / "drop-in" / name)
        neuron_tb.disable()
        restored = snapshot() == before
        with neuron_tb.enabled(device="always"):
            for function in ALWAYS:
                name = function.__name__
                results["always"][name] = attempt(function, base / "always" / name)
        with neuron_tb.enabled(cuda_shims=True):
            for function in SHIMMED:
                name = function.__name__
                results["shims"][name] = attempt(function, base / "shims" / name)
    results["restored"] = [restored, snapshot() == before]
    sys.stdout.write(json.dumps(results) + "\n")


def snapshot():
    """Everything that the drop-in may change."""
    owners = [
        torch.profiler,
        torch.profiler.profile,
        torch.profiler.profiler._KinetoProfile,
        torch.autograd.profiler.profile,
        torch.autograd.profiler.emit_nvtx,
        torch.autograd.profiler_util.EventList,
        torch.autograd.profiler_util.FunctionEvent,
        torch.autograd.profiler_util.FunctionEventAvg,
        torch.cuda,
        torch.cuda.nvtx,
        torch.cuda.profiler,
        torch.cuda.memory,
    ]
    # Modules that torch imports late appear by themselves.
    module = type(torch)
    return [
        {k: id(v) for k, v in vars(o).items() if not isinstance(v, module) and k[:2] != "__"}
        for o in owners
    ]


if __name__ == "__main__":
    sys.exit(main())
