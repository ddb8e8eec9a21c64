"""Opens ``*.pt.trace.json.gz`` with torch-tb-profiler's own reader, parser and page makers."""

from __future__ import annotations

import gzip
import json
import pickle
import sys
import tempfile
import traceback
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

from neuron_tb.checks import Report, View
from neuron_tb.checks.consumer import (
    Document,
    answer,
    ask,
    counted_slices,
    installed,
    read_document,
)

TARGET = "torch-tb"
_MODULE = "neuron_tb.checks.torch_tb"
_MOST_TOGETHER = 16
_ROOT = "CallTreeRoot"


def check(path: Path) -> Report:
    """Open one file as the plugin does; the first file of a run also opens the Distributed view."""
    report = Report(TARGET, str(path))
    try:
        document = read_document(path)
    except ValueError as error:
        report.problems.append(str(error))
        return report
    report.slices = counted_slices(document, report.problems)
    if not installed("torch_tb_profiler"):
        report.skipped = (
            "the PyTorch Profiler plugin is not installed (pip install 'neuron-tb[tensorboard]'); "
            "only the number of slices was checked"
        )
        return report
    run = sorted(path.parent.glob("*.pt.trace.json.gz"))
    together = run if run and run[0] == path and 1 < len(run) <= _MOST_TOGETHER else [path]
    others = [str(p) for p in together if p != path]
    size = sum(p.stat().st_size for p in together) / 1e6
    try:
        found = ask(_MODULE, str(path), *others, megabytes=size)
    except RuntimeError as error:
        report.problems.append(f"the plugin's code failed: {error}")
        return report
    _judge(report, document, found)
    return report


def _judge(report: Report, document: Document, found: dict[str, Any]) -> None:
    report.views += [View(v["name"], v["content"], v["ok"]) for v in found["views"]]
    report.problems += found["problems"]
    about = document.about
    wanted = about.get("operator_device_ns", 0) / 1000
    if abs(found.get("device_self_us", 0.0) - wanted) > 0.001 + 1e-6 * wanted:
        report.problems.append(
            f"operators have {found.get('device_self_us', 0.0):.3f} us of device time in the "
            f"plugin, {wanted:.3f} us in the file"
        )
    if found.get("root_kernels") and not about.get("kernels_without_operator"):
        report.problems.append(
            f"{found['root_kernels']} kernels belong to no operator in the plugin ({_ROOT})"
        )


def _open(paths: list[str]) -> dict[str, Any]:
    """What the plugin makes of these files; the first one is described."""
    data_module = import_module("torch_tb_profiler.profiler.data")
    generator = import_module("torch_tb_profiler.profiler.run_generator").RunGenerator
    pattern = import_module("torch_tb_profiler.consts").WORKER_PATTERN
    found: dict[str, Any] = {"views": [], "problems": []}
    loaded = []
    for path in paths:
        match = pattern.match(Path(path).name)
        if match is None:
            found["problems"].append(f"{Path(path).name} is no name that the plugin looks for")
            return found
        with tempfile.TemporaryDirectory() as cache:
            data = data_module.RunProfileData.parse(match[1], 1, path, cache)
        loaded.append((data, generator(match[1], 1, data).generate_run_profile()))
    data, profile = loaded[0]
    spread = [data_module.DistributedRunProfileData(d) for d, _ in loaded]
    # The plugin sends both between processes; what cannot be pickled never appears.
    pickle.dumps((profile, spread[0]))
    found["device_self_us"] = float(
        sum(op.self_device_duration for op in data.op_list_groupby_name)
    )
    found["root_kernels"] = sum(
        kernel.calls for kernel in data.kernel_list_groupby_name_op if kernel.op_name == _ROOT
    )
    for name, describe in _views(data, profile).items():
        found["views"].append(_view(name, describe))
    if len(loaded) > 1 and data.has_communication:
        found["views"].append(_view("Distributed", lambda: _distributed(spread, paths)))
    return found


def _view(name: str, describe: Callable[[], str]) -> dict[str, Any]:
    try:
        return {"name": name, "content": describe(), "ok": True}
    except Exception as error:
        place = traceback.extract_tb(error.__traceback__)[-1]
        where = f"{Path(place.filename).name}:{place.lineno}"
        return {"name": name, "content": f"{type(error).__name__}: {error} ({where})", "ok": False}


def _views(data: Any, profile: Any) -> dict[str, Callable[[], str]]:
    """How to open each view that the plugin offers for a profile."""

    def overview() -> str:
        steps = profile.overview["steps"]["rows"]
        return f"{len(steps)} steps, device {'GPU' if profile.has_kernel else 'CPU'}"

    def operators() -> str:
        rows = profile.operation_table_by_name["data"]
        json.dumps([profile.operation_pie_by_name, profile.operation_table_by_name_input])
        device = sum(op.self_device_duration for op in data.op_list_groupby_name)
        return f"{len(rows)} operators, {device:.1f} us of device time"

    def kernels() -> str:
        json.dumps([profile.kernel_op_table, profile.kernel_pie, profile.tc_pie])
        return f"{len(profile.kernel_table['data']['rows'])} kernel names"

    def trace() -> str:
        raw = gzip.decompress(Path(profile.trace_file_path).read_bytes())
        if profile.has_kernel:
            raw = gzip.decompress(profile.append_gpu_metrics(raw))
        return f"{len(json.loads(raw)['traceEvents'])} events with the plugin's counters"

    def memory() -> str:
        rows = profile.get_memory_stats()["rows"]
        curve = profile.get_memory_curve(time_metric="ms", memory_metric="K")["rows"]
        profile.get_memory_events(time_metric="ms", memory_metric="K")
        return f"operators of {', '.join(rows) or 'no device'}, curves of {', '.join(curve)}"

    def modules() -> str:
        return f"{len(profile.get_module_view()['data'])} top modules"

    def tree() -> str:
        json.dumps(profile.get_operator_tree())
        return "the first thread's calls"

    known = {
        "Overview": overview,
        "Operator": operators,
        "Kernel": kernels,
        "Trace": trace,
        "Memory": memory,
        "Module": modules,
    }
    offered = {
        v.display_name: known[v.display_name] for v in profile.views if v.display_name in known
    }
    return {**offered, "Call tree": tree}


def _distributed(spread: list[Any], paths: list[str]) -> str:
    loader = import_module("torch_tb_profiler.profiler.loader").RunLoader
    folder = Path(paths[0]).parent
    run = import_module("torch_tb_profiler.run").Run(folder.name, str(folder))
    for profile in spread:
        run.add_profile(profile)
    made = loader(folder.name, str(folder), None)._process_spans(run)
    if not made or made[0] is None:
        return "not offered: the ranks' collectives do not match"
    rows = {worker: len(table["rows"]) for worker, table in made[0].comm_ops["data"].items()}
    return f"{len(rows)} workers, {max(rows.values(), default=0)} kinds of collectives"


if __name__ == "__main__":
    answer(_open(sys.argv[1:]))
