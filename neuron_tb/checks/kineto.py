"""Opens ``rankN.trace.json.gz`` with Holistic Trace Analysis, if that is installed.

HTA rounds every row to whole microseconds, inwards, so its sums may differ from the file's by two
microseconds per device row.
"""

from __future__ import annotations

import sys
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

TARGET = "kineto"
_MODULE = "neuron_tb.checks.kineto"
_DEVICE_CATEGORIES = ("kernel", "gpu_memcpy", "gpu_memset")
_ROUNDING_US = 2
_CONSECUTIVE_KERNEL_DELAY_NS = 30


def check(path: Path) -> Report:
    """Open one file with HTA; without HTA, look at the joints that it needs."""
    report = Report(TARGET, str(path))
    try:
        document = read_document(path)
    except ValueError as error:
        report.problems.append(str(error))
        return report
    report.slices = counted_slices(document, report.problems)
    _check_joints(report, document)
    if not installed("hta"):
        report.skipped = (
            "HTA is not installed (pip install HolisticTraceAnalysis) and was not asked; the "
            "numbers that join rows were checked"
        )
        return report
    try:
        found = ask(_MODULE, str(path), megabytes=path.stat().st_size / 1e6)
    except RuntimeError as error:
        report.problems.append(f"HTA failed: {error}")
        return report
    report.views += [View(v["name"], v["content"], v["ok"]) for v in found["views"]]
    report.problems += found["problems"]
    return report


def _check_joints(report: Report, document: Document) -> None:
    """Ranks, streams and correlation numbers, as every tool of this family needs them."""
    rank = document.head.get("distributedInfo", {}).get("rank")
    if not isinstance(rank, int):
        report.problems.append("the file states no rank (distributedInfo)")
    kernels = [e for e in document.complete() if e.get("cat") in _DEVICE_CATEGORIES]
    for key, least in (("stream", 1), ("correlation", 1), ("device", 0)):
        wrong = sum(not _at_least(event.get("args", {}).get(key), least) for event in kernels)
        if wrong:
            report.problems.append(f"{wrong} device rows have no usable {key}")
    host = [
        e["args"]["correlation"]
        for e in document.complete()
        if "correlation" in e.get("args", {}) and e.get("cat") not in _DEVICE_CATEGORIES
    ]
    joined = {e["args"]["correlation"] for e in kernels if "correlation" in e.get("args", {})}
    shared = [number for number in host if number in joined]
    if len(shared) != len(set(shared)):
        report.problems.append("several host rows have the correlation number of one device row")
    report.views.append(
        View("Joints", f"{len(kernels)} device rows, {len(set(shared))} of their calls in the file")
    )


def _at_least(value: object, least: int) -> bool:
    return isinstance(value, int) and value >= least


def _open(path: Path) -> dict[str, Any]:
    """What HTA makes of a file."""
    document = read_document(path)
    found: dict[str, Any] = {"views": [], "problems": []}
    rank = int(document.head["distributedInfo"]["rank"])
    analysis = import_module("hta.trace_analysis").TraceAnalysis(
        trace_files={rank: str(path)}, trace_dir=str(path.parent), include_last_profiler_step=True
    )
    rows = analysis.t.get_trace(rank)
    on_device = rows[rows["stream"].ne(-1)]
    found["views"].append(
        {"name": "Trace", "content": f"{len(rows)} rows, {len(on_device)} on devices", "ok": True}
    )
    if not len(on_device):
        return found
    wanted = _wanted(document, set(on_device["correlation"].tolist()))
    for name, describe in _analyses(analysis, rank, on_device, wanted, found["problems"]).items():
        found["views"].append(_view(name, describe))
    return found


def _wanted(document: Document, correlations: set[int]) -> list[tuple[float, float]]:
    """Start and end (microseconds) of the file's device rows that HTA kept.

    HTA leaves out work that no recorded step launched.
    """
    return [
        (e["ts"], e["ts"] + e["dur"])
        for e in document.complete()
        if e.get("cat") in _DEVICE_CATEGORIES and e["args"]["correlation"] in correlations
    ]


def _view(name: str, describe: Callable[[], str]) -> dict[str, Any]:
    try:
        return {"name": name, "content": describe(), "ok": True}
    except Exception as error:
        place = traceback.extract_tb(error.__traceback__)[-1]
        where = f"{Path(place.filename).name}:{place.lineno}"
        return {"name": name, "content": f"{type(error).__name__}: {error} ({where})", "ok": False}


def _analyses(
    analysis: Any,
    rank: int,
    on_device: Any,
    wanted: list[tuple[float, float]],
    problems: list[str],
) -> dict[str, Callable[[], str]]:
    def compare(what: str, theirs: float, ours: float) -> None:
        if abs(theirs - ours) > _ROUNDING_US * len(wanted):
            problems.append(f"{what}: {theirs:.0f} us in HTA, {ours:.3f} us in the file")

    def temporal() -> str:
        short = int((on_device["dur"] < 0).sum())
        try:
            row = analysis.get_temporal_breakdown(visualize=False).iloc[0]
        except AssertionError:
            if not short:
                raise
            return f"not available: HTA rounds {short} rows below a microsecond to negative lengths"
        busy = row["kernel_time(us)"] - row["idle_time(us)"]
        if len(on_device) == len(wanted):
            compare("busy time of the device", float(busy), _union(wanted))
        return f"device busy {busy:.0f} us, idle {row['idle_time(us)']:.0f} us"

    def kernels() -> str:
        types, names = analysis.get_gpu_kernel_breakdown(
            visualize=False, include_memory_kernels=True, num_kernels=1_000_000
        )
        if len(on_device) == len(wanted):
            total = float(names["sum (us)"].sum())
            compare("sum of device rows", total, sum(end - start for start, end in wanted))
        return f"{len(names)} kernel names in {len(types)} kinds of time"

    def launches() -> str:
        table = analysis.get_cuda_kernel_launch_stats(ranks=[rank], visualize=False)[rank]
        return f"{len(table)} launches with their device rows"

    def idle() -> str:
        table, _ = analysis.get_idle_time_breakdown(
            ranks=[rank],
            consecutive_kernel_delay=_CONSECUTIVE_KERNEL_DELAY_NS,
            visualize=False,
        )
        return f"{table['stream'].nunique()} streams, {table['idle_time'].sum():.0f} us idle"

    return {
        "Temporal breakdown": temporal,
        "Kernel breakdown": kernels,
        "Launch statistics": launches,
        "Idle time": idle,
    }


def _union(intervals: list[tuple[float, float]]) -> float:
    covered, reach = 0.0, float("-inf")
    for start, end in sorted(intervals):
        covered += max(end - max(start, reach), 0.0)
        reach = max(reach, end)
    return covered


if __name__ == "__main__":
    answer(_open(Path(sys.argv[1])))
