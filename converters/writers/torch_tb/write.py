"""The PyTorch Profiler plugin of TensorBoard (torch-tb-profiler 0.4.3).

``OUT/RUN/HOST_PID.TIME.pt.trace.json.gz``, one file per process. The plugin knows CUDA's words of
2021 only: host calls are ``runtime``, device work is ``kernel``, ``gpu_memcpy`` or ``gpu_memset``,
and an operator gets device time through ``runtime``. Everything that it must not misread keeps a
category that it does not know: such rows are in its Trace view and in none of its sums.

All files of a run appear at once, because the plugin reads a directory when it first sees it and
never again.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from neuron_tb.converters.errors import NeuronTbError
from neuron_tb.converters.model import NONE, Bools, ClockKind, Int32, Int64, Role, Trace
from neuron_tb.converters.model.lanes import lay_out
from neuron_tb.converters.model.ragged import used
from neuron_tb.converters.storage.output import (
    refuse_overwrite,
    replacing_directory,
    safe_name,
    same_file,
)
from neuron_tb.converters.writers import Destination, Written
from neuron_tb.converters.writers.chrome_json import (
    METADATA_KEY,
    base_that_keeps_nanoseconds,
    event_file,
    head_of,
    second_of,
)
from neuron_tb.converters.writers.cuda.device_details import without_device_profiles
from neuron_tb.converters.writers.cuda.events import (
    Events,
    add_markers,
    base_metadata,
    draw_kernels,
    external_ids,
    kernel_names,
    process_counters,
    process_flows,
    process_memory,
    set_apart_what_does_not_count,
    translated_memory,
    write_events,
)
from neuron_tb.converters.writers.cuda.translation import device_properties, translate
from neuron_tb.converters.writers.edits import EXTERNAL_ID, decoded_lazily
from neuron_tb.converters.writers.freed_memory import give_back
from neuron_tb.converters.writers.torch_tb.arrows import arrows_would_lose_rows
from neuron_tb.converters.writers.torch_tb.collectives import add_collectives, find_collectives
from neuron_tb.converters.writers.torch_tb.doubles import keep_half_microseconds, keep_touching_ends
from neuron_tb.converters.writers.torch_tb.steps import steps_without_time
from neuron_tb.converters.writers.torch_tb.words import (
    SIZE_KEYS,
    STEP,
    TENSOR_CORE,
    Names,
    are_modules,
    has_consistent_sizes,
)

TARGET = "torch-tb"
MOST_DEVICES = 64
"""The plugin keeps 64 devices; a kernel on number 64 loses the file."""

MOST_NESTED = 128
"""Deeper operator trees cannot be pickled on the way from the plugin's reader to its pages."""

_NOTE = (
    "This file is a translation into CUDA's terms for the PyTorch Profiler plugin; "
    "'GPU', 'CUDA' and 'Tensor Core' in its pages are the plugin's words, not the hardware's"
)


def write(trace: Trace, destination: Destination) -> list[Written]:
    """Write one file per process that has operators; the run's folder appears at once.

    Raises NeuronTbError when the folder exists and may not, or must not, be replaced.
    """
    folder = destination.out / destination.run
    refuse_overwrite(folder, destination.force)
    refuse_foreign_files(folder)
    trace, left_out = without_device_profiles(trace)
    base_ns = base_that_keeps_nanoseconds(trace, second_of(trace.time_range()[0]))
    plans: list[_Plan] = []
    skipped: list[Written] = []
    for process in _processes_with_slices(trace):
        reason = _unsuitable(trace, process)
        if reason is None:
            plans.append(_Plan(trace, process, destination, base_ns))
        else:
            skipped.append(Written(TARGET, None, skipped=reason))
    if not plans:
        return skipped[:1] or [Written(TARGET, None, skipped=_NO_OPERATORS)]
    identities = [(trace.processes[plan.process], plan.process) for plan in plans]
    names = file_names([(p.host, p.pid, p.rank, _start_ns(trace, n)) for p, n in identities])
    written = []
    with replacing_directory(folder) as temporary:
        for number, plan in enumerate(plans):
            written.append(plan.write(temporary / f"{number}.unfinished", folder / names[number]))
        # TensorBoard may be looking already: no name fits its pattern until all files are whole.
        for number, name in enumerate(names):
            (temporary / f"{number}.unfinished").rename(temporary / name)
    written[0].findings.extend(left_out)
    return written + skipped


_NO_OPERATORS = (
    "the PyTorch Profiler plugin cannot take a capture without framework operators; "
    "record with ProfilerActivity.CPU, or use the Perfetto output"
)


def _unsuitable(trace: Trace, process: int) -> str | None:
    """Why the plugin cannot take a process, None when it can."""
    steps = [n for n, text in enumerate(trace.strings) if text.startswith(STEP)]
    rows = (trace.slice_process == process) & trace.roles(Role.OPERATOR)
    rows &= ~np.isin(trace.slices.name, steps)
    if not rows.any():
        return _NO_OPERATORS
    start, end = trace.slices.start_ns[rows], trace.slices.end_ns[rows]
    if end.max() - start.min() < 1000:
        return (
            "the PyTorch Profiler plugin cannot take a capture whose operators span less than a "
            "microsecond"
        )
    return None


def _processes_with_slices(trace: Trace) -> list[int]:
    found: list[int] = used(trace.slice_process).tolist()
    return found


def refuse_foreign_files(folder: Path) -> None:
    """A run's folder is replaced as a whole: it must hold nothing but such a run."""
    if folder.exists() and not folder.is_dir():
        raise NeuronTbError(f"{folder} is not a folder; choose another --run.")
    if folder.exists():
        others = [p.name for p in folder.iterdir() if ".pt.trace.json" not in p.name]
        if others:
            raise NeuronTbError(
                f"{folder} holds other files too ({others[0]}) and is not replaced; choose "
                "another --run."
            )


def _start_ns(trace: Trace, process: int) -> int:
    return int(trace.slices.start_ns[trace.slice_process == process].min())


def file_names(processes: Sequence[tuple[str, int, int | None, int]]) -> list[str]:
    """``HOST_PID.TIME.pt.trace.json.gz`` each: HOST_PID is the plugin's worker, TIME its span.

    ``processes``: host, process id, rank, start in nanoseconds. TIME is the start in 19 digits,
    because spans are sorted as text. Different ranks with the same host and pid (containers) are
    different workers.
    """
    same: dict[tuple[str, int], list[int]] = {}
    for number, (host, pid, _, _) in enumerate(processes):
        same.setdefault((host, pid), []).append(number)
    names: list[str] = []
    taken: set[str] = set()
    for number, (host, pid, rank, start) in enumerate(processes):
        twins = same[host, pid]
        name_of_host = safe_name(host or "localhost")
        ranks = {processes[twin][2] for twin in twins}
        if len(ranks) > 1 or (len(twins) > 1 and None in ranks):
            name_of_host += f"-rank{rank if rank is not None else twins.index(number)}"
        worker, copy = f"{name_of_host}_{pid}", 1
        while same_file(name := f"{worker}.{max(start, 0):019d}.pt.trace.json.gz") in taken:
            copy += 1
            worker = f"{name_of_host}-{copy}_{pid}"
        names.append(name)
        taken.add(same_file(name))
    return names


class _Plan:
    """One process as the plugin shall see it."""

    def __init__(self, trace: Trace, process: int, destination: Destination, base_ns: int) -> None:
        self.trace, self.process, self.base_ns = trace, process, base_ns
        self.instance_type = destination.instance_type
        self.t = translate(trace, process, destination.instance_type, MOST_DEVICES)
        self.findings = self.t.findings
        self.events = Events.of(self.t, base_ns)
        self.names = Names(trace.strings)

    def write(self, path: Path, final: Path) -> Written:
        """Write the file to ``path``; the result speaks of ``final``."""
        self._categories()
        self._limit_depth()
        self._link()
        self._hide_steps()
        keep_touching_ends(self.events, self.tree)
        keep_half_microseconds(self.events)
        flow_category = self._flow_categories()
        # The plugin looks the host up as device -1: the last one of the list.
        memory = translated_memory(self.t, MOST_DEVICES, -1)
        self.memory_devices = memory.devices
        counters = process_counters(self.t, self.findings)
        head = self._head()
        give_back()
        with event_file(path, head) as file:
            write_events(file, self.events, counters, memory, flow_category)
        return Written(TARGET, final, self.events.own_rows, findings=self.findings)

    # -- what each row is -------------------------------------------------------------------

    def _categories(self) -> None:
        t, events, names = self.t, self.events, self.names
        role, name = t.role, t.name
        events.category = names.unknown_category(events)[t.category]
        annotation = role == Role.ANNOTATION
        operator = role == Role.OPERATOR
        timed = annotation & (names.loader | names.optimizer)[name]
        module = np.zeros(len(role), np.bool_)
        frames = np.flatnonzero(role == Role.PYTHON)
        module[frames] = are_modules(self.trace, t.rows[frames])
        self.step = self._step_rows()
        # The plugin compares names before kinds: such a frame would lose the file.
        misnamed = (role == Role.PYTHON) & names.collective[name]
        module &= ~misnamed
        events.set_category(role == Role.SPAN, "Trace")
        events.set_category(role == Role.PYTHON, "python_function")
        events.set_category(misnamed, "python_frame")
        events.set_category(annotation, "user_annotation")
        events.set_category(operator, "cpu_op")
        # The plugin drops other annotations.
        events.recategorise(np.flatnonzero(timed), "cpu_op")
        copies = (role == Role.DEVICE_ANNOTATION) & (names.step | names.collective)[name]
        events.set_category(role == Role.DEVICE_ANNOTATION, "gpu_user_annotation")
        events.set_category(copies, "device_annotation")
        self.findings.add(
            "device_step_copy",
            "copies of host annotations on a device row would be taken for more steps or "
            "collectives; they are drawn in the Trace view only",
            int(np.count_nonzero(copies)),
        )
        events.set_category(
            (annotation | operator) & names.step[name] & ~self.step, "step_annotation"
        )
        set_apart_what_does_not_count(events)
        short = (role == Role.SPAN) & (name == names.profiler_span) & (t.duration_ns < 1000)
        events.set_category(short, "span")
        known = (annotation | operator) & names.collective[name]
        self.known_collective = known
        self.tree = operator | timed | module | known | self.step
        self.tree &= ~((annotation | operator) & names.step[name] & ~self.step)
        self._make_readable()

    def _step_rows(self) -> Bools:
        """Rows that the plugin shall take for steps, named as it wants them."""
        t, steps = self.t, self.trace.steps
        found = np.zeros(len(t.rows), np.bool_)
        mine = np.flatnonzero((steps.process == self.process) & (steps.slice != NONE))
        rows = np.searchsorted(t.rows, steps.slice[mine])
        found[rows] = True
        self.events.set_category(rows, "user_annotation")
        names = [f"{STEP}{number}" for number in steps.number[mine].tolist()]
        self.events.rename(rows, self.events.words.intern_all(names, len(names)))
        return found

    def _make_readable(self) -> None:
        """Arguments that the plugin computes with must have the types that it expects."""
        t, edits = self.t, self.events.edits
        edits.rename("Call stack", self.tree, unless='^"')
        self.unsized = np.zeros(len(t.rows), np.bool_)
        for row in np.flatnonzero(self.known_collective).tolist():
            values = decoded_lazily(self.trace.raw_args(int(t.rows[row])))
            self.unsized[row] = not has_consistent_sizes(values)
        for key in SIZE_KEYS:
            edits.rename(key, self.unsized)
        for key in ("blocks per SM", "est. achieved occupancy %"):
            edits.rename(key, t.kernel != NONE, unless="^[-0-9tf]")

    def _limit_depth(self) -> None:
        """Rows nested too deeply leave the tree; their device work goes to the nearest ancestor."""
        deep = self._nest()
        self.tree[deep] = False
        self.events.set_category(deep, "nested_too_deep")
        self.findings.add(
            "nested_too_deep",
            f"rows nested more than {MOST_NESTED} deep are drawn in the Trace view only; their "
            "device time is shown with the operator around them",
            len(deep),
        )
        calls = self.t.calls
        operators = self.t.role == Role.OPERATOR
        outside = (calls.operator != NONE) & ~self.tree[calls.operator]
        while outside.any():
            calls.operator[outside] = self.tree_parent[calls.operator[outside]]
            outside = (calls.operator != NONE) & ~(self.tree & operators)[calls.operator]
        self._follow_repeated_names(operators)

    def _follow_repeated_names(self, operators: Bools) -> None:
        """Give device work to the innermost of operators that repeat one name.

        The plugin makes one row of an operator and its only child of the same name, and forgets
        the calls of the former.
        """
        t, calls = self.t, self.t.calls
        nested = np.flatnonzero(self.tree & (self.tree_parent != NONE))
        children = np.bincount(self.tree_parent[nested], minlength=len(self.tree))
        child = np.full(len(self.tree), NONE, np.int32)
        child[self.tree_parent[nested]] = nested
        same = (children == 1) & operators & operators[child] & (t.name == t.name[child])
        repeated = (calls.operator != NONE) & same[calls.operator]
        while repeated.any():
            calls.operator[repeated] = child[calls.operator[repeated]]
            repeated = (calls.operator != NONE) & same[calls.operator]

    def _nest(self) -> NDArray[np.intp]:
        """Set every tree row's parent in the tree; the rows that are nested too deeply."""
        rows = np.flatnonzero(self.tree)
        layout = lay_out(self.t.place[rows], self.t.start_ns[rows], self.t.duration_ns[rows])
        self.tree_parent = np.full(len(self.tree), NONE, np.int32)
        inside = layout.parent != NONE
        self.tree_parent[rows[inside]] = rows[layout.parent[inside]]
        return rows[layout.depth >= MOST_NESTED]

    # -- device work ------------------------------------------------------------------------

    def _link(self) -> None:
        t, events, calls = self.t, self.events, self.t.calls
        collectives = find_collectives(t, self.names, self.known_collective)
        known = np.flatnonzero(self.known_collective & self.tree).astype(np.int32)
        named = np.concatenate([calls.operator, known])
        ids, _ = external_ids(t, named)
        named = used(named[named != NONE])
        events.edits.set_numbers(EXTERNAL_ID, named, ids[named])
        if ((calls.row != NONE) & (calls.operator == NONE)).any():
            self._free_zero(ids)
        # 0: belongs to no operator. The plugin gives such calls to the root of their thread.
        of_call = np.where(calls.operator != NONE, ids[calls.operator], 0)
        of_kernel = of_call[t.kernels.call]
        add_collectives(
            events,
            self.names,
            self.known_collective,
            collectives,
            ids,
            of_kernel,
            self.unsized,
        )
        draw_kernels(events, self._kernel_names(), of_kernel)
        recorded = calls.row != NONE
        rows = calls.row[recorded]
        events.edits.set_numbers("correlation", rows, calls.correlation[recorded])
        events.edits.set_numbers(EXTERNAL_ID, rows, of_call[recorded])
        events.recategorise(rows, "runtime")
        marker = events.words.intern("launch (not recorded)")
        add_markers(events, "runtime", np.full(len(calls.row), marker, np.int32), of_call)
        operator = calls.operator[t.kernels.call]
        linked = (operator != NONE) & ~self.names.not_listed[t.name[operator]]
        self.operator_device_ns = int(t.kernels.duration_ns[linked].sum())

    def _kernel_names(self) -> Int32:
        """The plugin takes some fragments of NVIDIA's kernel names for use of Tensor Cores."""
        names, number = kernel_names(self.t)
        if not self._is_cuda:
            taken = np.array([TENSOR_CORE.search(name) is not None for name in names], np.bool_)
            names = [
                TENSOR_CORE.sub(lambda match: f"{match[0][:2]} {match[0][2:]}", name)
                for name in names
            ]
            self.findings.add(
                "kernel_renamed",
                "kernel names that the plugin would take for use of Tensor Cores are written with "
                "a space in them; the name itself is in the arguments",
                int(np.count_nonzero(taken[number])) if len(names) else 0,
            )
        return self.events.words.intern_all(names, len(names))[number]

    @property
    def _is_cuda(self) -> bool:
        return any(self.trace.devices[d].family == "cuda" for d in self.t.device_number)

    def _free_zero(self, ids: Int64) -> None:
        """No operator may be called 0 where calls without an operator are."""
        zero = self.tree & (ids == 0)
        for key in (EXTERNAL_ID, "external id"):
            self.events.edits.rename(key, zero)

    def _hide_steps(self) -> None:
        """Hide steps that would have no length in the plugin, which divides by it."""
        gone = steps_without_time(self.t, self.step)
        self.events.set_category(gone, "step_annotation")
        self.step[gone] = self.tree[gone] = False
        self._nest()
        self.findings.add(
            "step_without_time",
            "steps that launch nothing while the device still works on earlier ones have no time "
            "of their own in the plugin: they are drawn in the Trace view only",
            len(gone),
        )

    # -- flows, memory, head ----------------------------------------------------------------

    def _flow_categories(self) -> Int32:
        """``forward_backward`` where the plugin can take the arrows, else the source's word."""
        source, target, kind = process_flows(self.t)
        names = self.names
        category = names.unknown_category(self.events)[kind] if len(kind) else kind.copy()
        backward = names.forward_backward[kind] if len(kind) else np.zeros(0, np.bool_)
        if not backward.any():
            return category
        reason = arrows_would_lose_rows(
            self.t,
            names,
            self.tree,
            self.step,
            self.tree_parent,
            source[backward],
            target[backward],
        )
        if reason:
            self.findings.add("backward_not_shown", reason, int(np.count_nonzero(backward)))
        else:
            category[backward] = self.events.words.intern("forward_backward")
        return category

    def _head(self) -> dict[str, Any]:
        t = self.t
        used = {*t.kernels.device.tolist(), *self.memory_devices}
        properties = device_properties(t, self.instance_type, max(used, default=-1) + 1)
        self._silence_host_memory(properties)
        own = base_metadata(self.trace, self.events, TARGET, _NOTE, self.findings)
        own["operator_device_ns"] = self.operator_device_ns
        own["steps"] = int(np.count_nonzero(self.step))
        base_ns = self.base_ns if self.trace.clock.kind is ClockKind.EPOCH else None
        head = head_of(self.trace, self.process, base_ns, own)
        about = head.pop(METADATA_KEY)
        head["deviceProperties"] = properties
        rank = self.trace.processes[self.process].rank
        if rank is not None:
            head["distributedInfo"] = {**head.get("distributedInfo", {}), "rank": rank}
        head[METADATA_KEY] = about
        return head

    def _silence_host_memory(self, properties: list[dict[str, object]]) -> None:
        """The plugin compares the host's memory with the last device's capacity and warns."""
        memory = process_memory(self.t)
        peak = int(memory.total_allocated[memory.device_type == 0].max(initial=0))
        if properties:
            capacity = properties[-1].get("totalGlobalMem")
            if isinstance(capacity, int) and peak > 0.9 * capacity:
                del properties[-1]["totalGlobalMem"]
