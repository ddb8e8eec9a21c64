"""Kineto's own JSON in today's CUDA words, for HTA, TraceLens and Chakra.

``OUT/kineto/RUN/rankN.trace.json.gz``, one file per process. These tools look for CUDA's names
only: device work must be ``kernel``, ``gpu_memcpy`` or ``gpu_memset`` on a positive ``stream``,
and its launch a call named ``cudaLaunchKernel`` or ``cudaMemcpyAsync`` with the same
``correlation``. What the source said instead stays in the arguments (``source name``,
``source category``, …). A CUDA trace stays as it is.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from neuron_tb.converters.errors import NeuronTbError
from neuron_tb.converters.model import NONE, Bools, ClockKind, Int32, Int64, Role, Trace
from neuron_tb.converters.model.lanes import union_length
from neuron_tb.converters.model.ragged import used
from neuron_tb.converters.storage.output import refuse_overwrite, replacing_directory
from neuron_tb.converters.writers import Destination, Written
from neuron_tb.converters.writers.chrome_json import (
    METADATA_KEY,
    base_that_keeps_nanoseconds,
    event_file,
    head_of,
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
    set_apart_what_does_not_count,
    translated_memory,
    write_events,
)
from neuron_tb.converters.writers.cuda.translation import device_properties, translate
from neuron_tb.converters.writers.cuda.words import CALL_OF_KIND, Kind, collective
from neuron_tb.converters.writers.edits import EXTERNAL_ID
from neuron_tb.converters.writers.freed_memory import give_back

TARGET = "kineto"
_FILE_NAME = re.compile(r"rank\d+\.trace\.json\.gz")
_NO_SLICES = (
    "HTA and TraceLens cannot take a capture without slices: the profiler's schedule probably "
    "never reached an active step"
)
_ONLY_DETAIL = (
    "the capture holds only device profiles, and HTA and TraceLens have no place for engines and "
    "queues; use the Perfetto output"
)
_INTEGER = r"^-?\d+$"
_STEP = re.compile(r"ProfilerStep\s*#\s*\d+")
_MOST_DEVICES = 4096
_NOTE = (
    "This file is a translation into CUDA's terms, for tools that know no others; names that "
    "begin with cuda, nccl, Memcpy or Memset are such terms, the source's own are in the arguments"
)
_NCCL_KERNELS = {
    "all_reduce": "AllReduce",
    "all_gather": "AllGather",
    "reduce_scatter": "ReduceScatter",
    "broadcast": "Broadcast",
    "reduce": "Reduce",
}
_MODERN_CATEGORY = {
    Role.OPERATOR: "cpu_op",
    Role.ANNOTATION: "user_annotation",
    Role.PYTHON: "python_function",
    Role.DEVICE_ANNOTATION: "gpu_user_annotation",
    Role.SPAN: "Trace",
}


def write(trace: Trace, destination: Destination) -> list[Written]:
    """Write one file per process that has slices; the run's folder appears at once.

    Raises NeuronTbError when the folder exists and may not, or must not, be replaced.
    """
    folder = destination.out / "kineto" / destination.run
    refuse_overwrite(folder, destination.force)
    refuse_foreign_files(folder)
    trace, left_out = without_device_profiles(trace)
    processes = used(trace.slice_process).tolist()
    if not processes:
        return [
            Written(
                TARGET,
                None,
                skipped=_ONLY_DETAIL if left_out else _NO_SLICES,
            )
        ]
    base_ns = base_that_keeps_nanoseconds(trace, trace.clock.base_ns)
    written = []
    with replacing_directory(folder) as temporary:
        for process, rank in zip(
            processes, ranks_of([trace.processes[p].rank for p in processes]), strict=True
        ):
            name = f"rank{rank}.trace.json.gz"
            plan = _Plan(trace, process, rank, destination, base_ns)
            written.append(plan.write(temporary / name, folder / name))
    written[0].findings.extend(left_out)
    return written


def refuse_foreign_files(folder: Path) -> None:
    """A run's folder is replaced as a whole: it must hold nothing but such a run."""
    if not folder.exists():
        return
    names = [folder.name] if not folder.is_dir() else [p.name for p in folder.iterdir()]
    others = [name for name in names if not _FILE_NAME.fullmatch(name)]
    if others:
        raise NeuronTbError(
            f"{folder} holds other files too ({others[0]}) and is not replaced; choose "
            "another --run."
        )


def ranks_of(known: Sequence[int | None]) -> list[int]:
    """A rank per file: the process' own where it is unique, the lowest free number elsewhere."""
    taken: set[int] = set()
    ranks: dict[int, int] = {}
    for place, rank in enumerate(known):
        if rank is not None and rank >= 0 and rank not in taken:
            ranks[place] = rank
            taken.add(rank)
    for place in range(len(known)):
        if place not in ranks:
            ranks[place] = next(n for n in range(len(known) + 1) if n not in taken)
            taken.add(ranks[place])
    return [ranks[place] for place in range(len(known))]


class _Plan:
    """One process as HTA shall see it."""

    def __init__(
        self, trace: Trace, process: int, rank: int, destination: Destination, base_ns: int
    ) -> None:
        self.trace, self.process, self.rank, self.base_ns = trace, process, rank, base_ns
        self.instance_type = destination.instance_type
        self.t = translate(trace, process, destination.instance_type)
        self.findings = self.t.findings
        self.events = Events.of(self.t, base_ns)
        families = {trace.devices[d].family for d in self.t.device_number}
        self.is_cuda = "cuda" in families

    def write(self, path: Path, final: Path) -> Written:
        """Write the file to ``path``; the result speaks of ``final``."""
        self._categories()
        self._steps()
        self._link()
        memory = translated_memory(self.t, _MOST_DEVICES)
        counters = process_counters(self.t, self.findings)
        flow_kind = process_flows(self.t)[2]
        give_back()
        with event_file(path, self._head()) as file:
            write_events(file, self.events, counters, memory, flow_kind)
        return Written(TARGET, final, self.events.own_rows, findings=self.findings)

    def _categories(self) -> None:
        t, events = self.t, self.events
        strings = self.trace.strings
        role = t.role
        empty = [n for n, text in enumerate(strings) if not text]
        events.set_category(np.isin(t.category, empty), "other")
        for kind, category in _MODERN_CATEGORY.items():
            events.set_category(role == kind, category)
        set_apart_what_does_not_count(events)
        if not self.is_cuda:
            calls = np.flatnonzero((role == Role.RUNTIME) & (t.call == NONE))
            events.recategorise(calls, "cuda_runtime")
        self._clear_joining_keys()

    def _clear_joining_keys(self) -> None:
        """Only a kernel may have a ``stream``, only a kernel and its call their ``correlation``.

        HTA takes every row with a stream for device work, and joins all rows of a correlation.
        """
        t, edits = self.t, self.events.edits
        own = self.trace.slices.correlation[t.rows]
        other = (t.kernel == NONE) & (t.call == NONE)
        joins = np.isin(own, t.calls.correlation) | (own == NONE)
        keeps_stream = (t.kernel != NONE) | ((t.role == Role.DEVICE_DETAIL) & self.is_cuda)
        edits.rename("stream", ~keeps_stream)
        edits.rename("correlation", other & joins)
        edits.rename("correlation", other & ~joins, unless=_INTEGER)

    def _steps(self) -> None:
        """Steps are called ``ProfilerStep#N``; nothing else may begin with that word."""
        t, events, steps = self.t, self.events, self.trace.steps
        mine = np.flatnonzero((steps.process == self.process) & (steps.slice != NONE))
        rows = np.searchsorted(t.rows, steps.slice[mine])
        names = [f"ProfilerStep#{number}" for number in steps.number[mine].tolist()]
        events.rename(rows, events.words.intern_all(names, len(names)))
        renamed_steps = self.trace.step_annotation != "ProfilerStep#"
        similar: Bools = np.array(
            [
                s.startswith("ProfilerStep") and (renamed_steps or not _STEP.match(s))
                for s in self.trace.strings
            ]
            or [False]
        )
        own = np.zeros(len(t.rows), np.bool_)
        own[rows] = True
        others = np.flatnonzero(similar[t.name] & ~own)
        names = [f"annotation {self.trace.strings[n]}" for n in t.name[others].tolist()]
        events.rename(others, events.words.intern_all(names, len(names)))

    def _link(self) -> None:
        t, events, calls = self.t, self.events, self.t.calls
        ids, new = external_ids(t, calls.operator)
        events.edits.set_numbers(EXTERNAL_ID, new, ids[new])
        of_call = np.where(calls.operator != NONE, ids[calls.operator], 0)
        draw_kernels(events, self._kernel_names(), of_call[t.kernels.call])
        words = [events.words.intern(CALL_OF_KIND[kind]) for kind in Kind]
        names = np.array(words, np.int32)[calls.kind]
        self._draw_calls(names, of_call)
        add_markers(events, "cuda_runtime", names, of_call)

    def _draw_calls(self, names: Int32, external_id: Int64) -> None:
        calls, events = self.t.calls, self.events
        recorded = calls.row != NONE
        rows = calls.row[recorded]
        events.edits.set_numbers("correlation", rows, calls.correlation[recorded])
        events.edits.set_numbers(EXTERNAL_ID, rows, external_id[recorded])
        if not self.is_cuda:
            events.recategorise(rows, "cuda_runtime")
            events.rename(rows, names[recorded])

    def _kernel_names(self) -> Int32:
        """Collectives of devices that do not name them so get NCCL's kernel names."""
        distinct, number = kernel_names(self.t)
        names = [f"kernel {n}" if n.startswith("ProfilerStep") else n for n in distinct]
        if not self.is_cuda:
            kinds = {name: collective(name) for name in names}
            translated = {
                name: f"ncclDevKernel_{_NCCL_KERNELS.get(kind, 'SendRecv')} ({name})"
                for name, kind in kinds.items()
                if kind and not name.startswith("nccl")
            }
            names = [translated.get(name, name) for name in names]
        return self.events.words.intern_all(names, len(names))[number]

    def _head(self) -> dict[str, Any]:
        t, kernels = self.t, self.t.kernels
        own = base_metadata(self.trace, self.events, TARGET, _NOTE, self.findings)
        own["device_busy_ns"] = union_length(
            kernels.start_ns, kernels.start_ns + kernels.duration_ns
        )
        base_ns = self.base_ns if self.trace.clock.kind is ClockKind.EPOCH else None
        head = head_of(self.trace, self.process, base_ns, own)
        about = head.pop(METADATA_KEY)
        if not (self.is_cuda and head.get("deviceProperties")):
            count = max(kernels.device.tolist(), default=-1) + 1
            head["deviceProperties"] = device_properties(t, self.instance_type, count)
        info = head.get("distributedInfo", {})
        # HTA searches the text for the first `"rank": N`.
        head["distributedInfo"] = {"rank": self.rank} | {
            k: v for k, v in info.items() if k != "rank"
        }
        head = {
            "schemaVersion": head.pop("schemaVersion"),
            "distributedInfo": head.pop("distributedInfo"),
            **head,
        }
        head[METADATA_KEY] = about
        return head
