"""Opens ``HOST.xplane.pb`` files with XProf's own converter, if that is installed.

The views are computed in another process, on a copy of the files: XProf caches beside what it
reads, and its C++ code cannot be stopped from within. What a view shows is compared with what
the files hold and with what they say that they hold.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any

import msgspec

from neuron_tb.checks import Report, View
from neuron_tb.checks.consumer import answer, ask, installed
from neuron_tb.checks.xspace import message_class

TARGET = "xprof"
_MODULE = "neuron_tb.checks.xprof"
_ENDING = ".xplane.pb"
_MEMORY_EVENTS = ("MemoryAllocation", "MemoryDeallocation")
_COUNTER_LINE = "_counters_"
_MOST_EVENTS_DRAWN = 2_000_000
"""Beyond this the trace viewer is asked for its usual thinned picture only."""

_NO_STEP = "No step marker observed"


@dataclass
class _Facts:
    """What a set of files holds, read without XProf.

    ``operators``: occurrences and picoseconds by displayed name. ``steps``: for every core with
    work the steps in which it has some. ``stated``: the sums of what the files say.
    """

    events: int = 0
    counters: int = 0
    memory: Counter[str] = field(default_factory=Counter)
    operators: dict[str, list[int]] = field(default_factory=dict)
    steps: list[set[int]] = field(default_factory=list)
    stated: Counter[str] = field(default_factory=Counter)

    @property
    def occurrences(self) -> int:
        """Executions on the rows ``XLA Ops``."""
        return sum(count for count, _ in self.operators.values())

    @property
    def operator_ps(self) -> int:
        """Their length, picoseconds."""
        return sum(length for _, length in self.operators.values())

    @property
    def listed_steps(self) -> int:
        """Steps that every core with work has."""
        return len(set.intersection(*self.steps)) if self.steps else 0


def check(path: Path) -> Report:
    """Open a RUN directory, or one file of it, with XProf."""
    report = Report(TARGET, str(path))
    files = [path] if path.is_file() else sorted(path.glob(f"*{_ENDING}"))
    if not files:
        report.problems.append(f"there is no {_ENDING} file in {path}")
        return report
    facts = _read(files, report.problems)
    if facts is None:
        return report
    _compare_with_stated(facts, report)
    if not installed("xprof"):
        report.skipped = (
            'XProf is not installed (pip install "neuron-tb[tensorboard]") and was not asked; what '
            "the files say of themselves was checked"
        )
        return report
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary) / "plugins" / "profile" / "run"
        folder.mkdir(parents=True)
        copies = [Path(shutil.copy(file, folder / file.name)) for file in files]
        _look_at_views(report, facts, copies)
    return report


def _look_at_views(report: Report, facts: _Facts, files: Sequence[Path]) -> None:
    judges = {
        "overview_page": _judge_overview,
        "hlo_stats": _judge_operators,
        "framework_op_stats": _judge_framework,
        "op_profile": _judge_profile,
        "roofline_model": _judge_roofline,
        "trace_viewer@": _judge_trace,
        "memory_profile": _judge_memory,
    }
    questions = _questions(files, 0 if facts.events <= _MOST_EVENTS_DRAWN else 8000)
    allocators: set[str] = set()
    for question, found in zip(questions, _ask(questions), strict=True):
        if "error" in found:
            report.views.append(View(question.view, f"does not open: {found['error']}", ok=False))
            continue
        allocators.update(found.get("allocators", ()))
        content = judges[question.tool](found, facts, report.problems)
        report.views.append(View(question.view, content))
    if allocators != set(facts.memory):
        report.problems.append(
            f"Memory Profile shows {_list(allocators)}; the files hold {_list(facts.memory)}"
        )


class _Question(msgspec.Struct):
    """A view to compute: its name in the viewer, XProf's name of the tool, and its files."""

    view: str
    tool: str
    files: list[str]
    resolution: int


def _questions(files: Sequence[Path], resolution: int) -> list[_Question]:
    paths = [str(file) for file in files]
    questions = [
        _Question(view, tool, paths, resolution)
        for view, tool in (
            ("Overview", "overview_page"),
            ("HLO Op Stats", "hlo_stats"),
            ("Framework Op Stats", "framework_op_stats"),
            ("HLO Op Profile", "op_profile"),
            ("Roofline", "roofline_model"),
            ("Trace Viewer", "trace_viewer@"),
        )
    ]
    for file in files:
        # XProf computes this view for one host at a time.
        view = "Memory Profile" if len(files) == 1 else f"Memory Profile, {_host(file)}"
        questions.append(_Question(view, "memory_profile", [str(file)], resolution))
    return questions


def _ask(questions: Sequence[_Question]) -> list[dict[str, Any]]:
    """An answer for each question, ``error`` when there is none.

    All are asked in one process; where it crashes or hangs, each in a process of its own.
    """
    paths = {path for question in questions for path in question.files}
    megabytes = sum(Path(path).stat().st_size for path in paths) / 1e6
    # In a file, since the paths of a run of very many hosts are too long for a command line.
    file = Path(questions[0].files[0]).parent.with_name("questions.json")
    file.write_bytes(msgspec.json.encode(questions))
    try:
        answers: list[dict[str, Any]] = ask(_MODULE, str(file), megabytes=megabytes)["answers"]
        return answers
    except RuntimeError as error:
        if len(questions) == 1:
            return [{"error": str(error)}]
        return [found for question in questions for found in _ask([question])]


# -- what each view should have -------------------------------------------------------------------


def _compare_with_stated(facts: _Facts, report: Report) -> None:
    if "neuron_tb_slices" not in facts.stated:
        report.problems.append("the file does not say how many slices it shows")
        return
    report.slices = facts.stated["neuron_tb_slices"]
    for found, stated, what in (
        (facts.events, facts.stated["neuron_tb_events"], "drawn events"),
        (facts.occurrences, facts.stated["neuron_tb_operators"], "executions"),
        (
            facts.operator_ps,
            facts.stated["neuron_tb_operator_ns"] * 1000,
            "picoseconds of device work",
        ),
    ):
        if found != stated:
            report.problems.append(f"the file has {found} {what}, and says {stated}")
    missing = facts.stated["neuron_tb_events"] - facts.events
    report.slices = max(report.slices - max(missing, 0), 0)


def _judge_overview(found: dict[str, Any], facts: _Facts, problems: list[str]) -> str:
    no_step = [m for m in found["messages"] if m.startswith(_NO_STEP)]
    others = len(found["messages"]) - len(no_step)
    warnings = f"; {_count(others, 'warning')}" if others else ""
    if not facts.steps:
        return f"no device work, so no steps{warnings}"
    # Without a step that every core has, what XProf lists is arbitrary.
    if facts.listed_steps:
        problems += [f"Overview says: {message}" for message in no_step]
        if found["steps"] != facts.listed_steps:
            problems.append(
                f"Overview lists {found['steps']} steps, the file has {facts.listed_steps}"
            )
    return (
        f"{_count(found['steps'], 'step')}, {_count(found['operators'], 'top operator')}, "
        f"device idle {found['idle']}, duty cycle {found['duty']}; {found['device']}{warnings}"
    )


def _judge_operators(found: dict[str, Any], facts: _Facts, problems: list[str]) -> str:
    rows: dict[str, list[float]] = found["operators"]
    for name in sorted(set(rows) | set(facts.operators)):
        count, microseconds = rows.get(name, (0, 0.0))
        expected, picoseconds = facts.operators.get(name, (0, 0))
        if count != expected or not _same_time(microseconds, picoseconds, expected):
            problems.append(
                f"HLO Op Stats has {name} {count:g} times, {microseconds} us; the file has it "
                f"{expected} times, {picoseconds / 1e6} us"
            )
    return _operator_sentence(len(rows), rows.values())


def _judge_framework(found: dict[str, Any], facts: _Facts, problems: list[str]) -> str:
    rows: dict[str, list[float]] = found["operators"]
    count = sum(row[0] for row in rows.values())
    microseconds = sum(row[1] for row in rows.values())
    if count != facts.occurrences or not _same_time(microseconds, facts.operator_ps, int(count)):
        problems.append(
            f"Framework Op Stats has {count:g} executions of {microseconds} us; the file has "
            f"{facts.occurrences} of {facts.operator_ps / 1e6} us"
        )
    return _operator_sentence(len(rows), rows.values())


def _judge_profile(found: dict[str, Any], facts: _Facts, problems: list[str]) -> str:
    shown, held = found["ps"] / 1e6, facts.operator_ps / 1e6
    if not _same_time(shown, facts.operator_ps, facts.occurrences):
        problems.append(f"HLO Op Profile adds up to {shown} us, the file to {held} us")
    return f"{_count(found['categories'], 'category', 'categories')} of operators"


def _judge_roofline(found: dict[str, Any], facts: _Facts, problems: list[str]) -> str:
    if facts.operators and not found["rows"]:
        problems.append("Roofline has no row")
    peak = f"peak {found['peak_gflops'] / 1000:g} TFLOP/s" if found["peak_gflops"] else "no peaks"
    return f"{_count(found['rows'], 'row')}, {peak}"


def _judge_trace(found: dict[str, Any], facts: _Facts, problems: list[str]) -> str:
    complete = facts.events <= _MOST_EVENTS_DRAWN
    if complete and found["events"] != facts.events:
        problems.append(f"Trace Viewer draws {found['events']} events of {facts.events}")
    if complete and found["samples"] != facts.counters:
        problems.append(f"Trace Viewer draws {found['samples']} samples of {facts.counters}")
    if not complete and not found["events"]:
        problems.append(f"Trace Viewer draws none of {facts.events} events")
    return (
        f"{_count(found['events'], 'event')}{'' if complete else ' (thinned)'} in "
        f"{_count(found['rows'], 'row')}, {_count(found['arrows'], 'arrow')}, "
        f"{_count(found['samples'], 'counter sample')}"
    )


def _judge_memory(found: dict[str, Any], facts: _Facts, problems: list[str]) -> str:
    allocators = found["allocators"]
    if not allocators:
        return "no memory events"
    return "; ".join(
        f"{name}: {_count(a['samples'], 'sample')}, peak {a['peak'] / 2**20:.1f} MiB"
        for name, a in sorted(allocators.items())
    )


def _operator_sentence(operators: int, rows: Iterable[Sequence[float]]) -> str:
    rows = list(rows)
    count, microseconds = sum(row[0] for row in rows), sum(row[1] for row in rows)
    return (
        f"{_count(operators, 'operator')}, {_count(int(count), 'execution')}, {microseconds:.1f} us"
    )


def _same_time(microseconds: float, picoseconds: int, rows: int) -> bool:
    return abs(microseconds * 1e6 - picoseconds) <= 1000 + rows + picoseconds * 1e-9


def _count(number: int, one: str, many: str = "") -> str:
    return f"{number} {one if number == 1 else many or one + 's'}"


def _list(names: Iterable[str]) -> str:
    return ", ".join(sorted(names)) or "nothing"


def _host(path: Path) -> str:
    return path.name.removesuffix(_ENDING)


# -- the files, without XProf ---------------------------------------------------------------------


def _read(files: Sequence[Path], problems: list[str]) -> _Facts | None:
    facts = _Facts()
    for file in files:
        space = message_class()()
        try:
            space.ParseFromString(file.read_bytes())
        except Exception as error:
            problems.append(f"{file.name} is no whole XSpace: {error}")
            return None
        for plane in space.planes:
            _read_plane(plane, facts)
    return facts


def _read_plane(plane: Any, facts: _Facts) -> None:
    names = {number: metadata.name for number, metadata in plane.event_metadata.items()}
    stat_names = {number: metadata.name for number, metadata in plane.stat_metadata.items()}
    facts.stated.update(
        {
            stat_names[stat.metadata_id]: stat.int64_value
            for stat in plane.stats
            if stat_names[stat.metadata_id].startswith("neuron_tb_")
        }
    )
    memory = {number for number, name in names.items() if name in _MEMORY_EVENTS}
    for line in plane.lines:
        if line.name == _COUNTER_LINE:
            facts.counters += len(line.events)
        elif line.events and line.events[0].metadata_id in memory:
            facts.memory[_allocator(line.events[0], stat_names)] += len(line.events)
        else:
            facts.events += len(line.events)
        if line.name == "XLA Ops" and plane.name.startswith("/device:TPU:"):
            _read_operators(line, names, stat_names, facts)


def _read_operators(
    line: Any, names: dict[int, str], stat_names: dict[int, str], facts: _Facts
) -> None:
    shown = {number: name.removeprefix("%").split(" = ")[0] for number, name in names.items()}
    steps: set[int] = set()
    for event in line.events:
        row = facts.operators.setdefault(shown[event.metadata_id], [0, 0])
        row[0] += 1
        row[1] += event.duration_ps
        steps.update(s.int64_value for s in event.stats if stat_names[s.metadata_id] == "group_id")
    facts.steps.append(steps)


def _allocator(event: Any, stat_names: dict[int, str]) -> str:
    for stat in event.stats:
        if stat_names[stat.metadata_id] == "allocator_name":
            return stat_names[stat.ref_value] if stat.ref_value else str(stat.str_value)
    return ""


# -- inside the asked process ---------------------------------------------------------------------


def _answer(question: _Question) -> dict[str, Any]:
    """What XProf makes of the files, reduced to what is judged."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    convert = import_module("xprof.convert.raw_to_tool_data").xspace_to_tool_data
    options: dict[str, Any] = {
        "hosts": [_host(Path(file)) for file in question.files],
        "use_saved_result": False,
        "group_by": "program",
    }
    if question.tool == "trace_viewer@":
        options["trace_viewer_options"] = {"resolution": question.resolution, "full_dma": False}
    try:
        data, _ = convert(question.files, question.tool, options)
    except Exception as error:
        return {"error": f"{type(error).__name__}: {error}"}
    if data is None:
        return {"error": "XProf could not convert the file"}
    reductions: dict[str, Callable[[Any], dict[str, Any]]] = {
        "overview_page": _reduce_overview,
        "hlo_stats": _reduce_operators,
        "framework_op_stats": _reduce_framework,
        "op_profile": _reduce_profile,
        "roofline_model": _reduce_roofline,
        "trace_viewer@": _reduce_trace,
        "memory_profile": _reduce_memory,
    }
    return reductions[question.tool](msgspec.json.decode(data))


def _rows(table: dict[str, Any]) -> list[dict[str, Any]]:
    columns = [column["id"] for column in table["cols"]]
    return [
        dict(zip(columns, (cell and cell.get("v") for cell in row["c"]), strict=False))
        for row in table["rows"]
    ]


def _reduce_overview(tables: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "operators": len(tables[0]["rows"]),
        "steps": len(tables[1]["rows"]),
        "idle": tables[0]["p"].get("device_idle_time_percent", "-"),
        "duty": tables[0]["p"].get("device_duty_cycle_percent", "-"),
        "device": tables[2]["p"].get("device_type", "-"),
        "messages": [row["message"] for row in _rows(tables[6])],
    }


def _reduce_operators(table: dict[str, Any]) -> dict[str, Any]:
    return {"operators": _sums((r["hlo_op_name"], r) for r in _rows(table))}


def _reduce_framework(tables: list[dict[str, Any]]) -> dict[str, Any]:
    rows = (r for r in _rows(tables[1]) if r["host_or_device"] == "Device")
    return {"operators": _sums((r["operation"], r) for r in rows)}


def _sums(rows: Iterable[tuple[str, dict[str, Any]]]) -> dict[str, list[float]]:
    sums: dict[str, list[float]] = {}
    for name, row in rows:
        sum_ = sums.setdefault(name, [0.0, 0.0])
        sum_[0] += row["occurrences"]
        sum_[1] += row["total_time"]
    return sums


def _reduce_profile(profile: dict[str, Any]) -> dict[str, Any]:
    programs = [
        program
        for program in profile.get("byProgram", {}).get("children", [])
        if program["name"] != "IDLE"
    ]
    return {
        "ps": sum(program["metrics"]["rawTime"] for program in programs),
        "categories": sum(len(program["children"]) for program in programs),
    }


def _reduce_roofline(tables: list[dict[str, Any]]) -> dict[str, Any]:
    peak = tables[0].get("p", {}).get("peak_flop_rate", 0)
    return {"rows": len(tables[0]["rows"]), "peak_gflops": float(peak or 0)}


def _reduce_trace(trace: dict[str, Any]) -> dict[str, Any]:
    events = trace["traceEvents"]
    drawn = [event for event in events if event["ph"] == "X"]
    starts = {event["bind_id"] for event in drawn if event.get("flow_out")}
    return {
        "events": len(drawn),
        "rows": len({(event["pid"], event["tid"]) for event in drawn}),
        "arrows": sum(
            event.get("flow_in", False) and event["bind_id"] in starts for event in drawn
        ),
        "samples": sum(len(event["entries"]) for event in events if event["ph"] == "C"),
    }


def _reduce_memory(profile: dict[str, Any]) -> dict[str, Any]:
    return {
        "allocators": {
            name: {
                "samples": len(own["sampledTimelineSnapshots"]),
                "peak": int(own["profileSummary"]["peakBytesUsageLifetime"]),
            }
            for name, own in profile.get("memoryProfilePerAllocator", {}).items()
        }
    }


if __name__ == "__main__":
    asked = msgspec.json.decode(Path(sys.argv[1]).read_bytes(), type=list[_Question])
    answer({"answers": [_answer(question) for question in asked]})
