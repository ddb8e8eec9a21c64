"""``framework_mapping_<timestamp>.json``: which operators each execution of the runtime ran.

Early releases of TorchNeuron wrote it beside their traces: a sequence id of the runtime, and
PyTorch's sequence numbers of the operators that were run by it (several where they were joined
into one program). It becomes arrows from the operator to the call that queued the execution.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import defaultdict
from pathlib import Path

import msgspec
import numpy as np

from neuron_tb.converters.captures.capture import Found
from neuron_tb.converters.model import NONE, Flows, Role, Trace

FLOW_NAME = "framework_mapping"
KNOWN_VERSION = 1

_SEQUENCE_NUMBER = re.compile(rb'"Sequence number":\s*(\d{1,18})')


class _Operator(msgspec.Struct, gc=False):
    seq_nr: int


class _Execution(msgspec.Struct, gc=False):
    nrta_seq_id: int
    framework_op_exec_ids: list[_Operator]


class _Content(msgspec.Struct):
    data: list[_Execution]
    version: int = KNOWN_VERSION


def add_mappings(trace: Trace, found: Found) -> None:
    """Add the arrows of every mapping that lies with a capture of the trace."""
    for capture in found.captures:
        for path in capture.mappings():
            process = [
                number
                for number, known in enumerate(trace.processes)
                if known.pid == capture.pid and known.host in (capture.host, "")
            ]
            content = _decoded(path, trace)
            if content is None or (len(process) != 1 and len(trace.processes) != 1):
                continue
            _add(trace, content, process[0] if process else 0)


def _decoded(path: Path, trace: Trace) -> _Content | None:
    try:
        content = msgspec.json.decode(path.read_bytes(), type=_Content)
    except (OSError, msgspec.MsgspecError, RecursionError):
        trace.findings.add(
            "mapping_unreadable",
            "mappings of operators to executions could not be read and were left out",
            where=str(path),
        )
        return None
    if content.version > KNOWN_VERSION:
        trace.findings.add(
            "newer_version",
            f"{path.name} has version {content.version}, newer than {KNOWN_VERSION}; what is known "
            "of it was read",
        )
    return content


def _add(trace: Trace, content: _Content, process: int) -> None:
    calls = _calls(trace, process)
    starts, rows = _operators(trace, process)
    edges: list[tuple[int, int]] = []
    for execution in content.data:
        call = calls.get(execution.nrta_seq_id)
        if call is None:
            continue
        begin = int(trace.slices.start_ns[call])
        for operator in execution.framework_op_exec_ids:
            # Forward and backward share a number: it is the last one that had begun.
            place = bisect_right(starts[operator.seq_nr], begin) - 1
            if place >= 0:
                edges.append((rows[operator.seq_nr][place], call))
    if not edges:
        return
    name = len(trace.strings)
    trace.strings = [*trace.strings, FLOW_NAME]
    source, target = np.array(edges, np.int32).T
    added = Flows(source, target, np.full(len(edges), name, np.int32))
    trace.flows = Flows.concatenate([trace.flows, added])


def _calls(trace: Trace, process: int) -> dict[int, int]:
    """The first call of the runtime with each sequence id."""
    rows = np.flatnonzero(
        trace.roles(Role.RUNTIME)
        & (trace.slice_process == process)
        & (trace.slices.sequence_id != NONE)
    )
    rows = rows[np.argsort(trace.slices.start_ns[rows], kind="stable")][::-1]
    return dict(zip(trace.slices.sequence_id[rows].tolist(), rows.tolist(), strict=True))


def _operators(
    trace: Trace, process: int
) -> tuple[defaultdict[int, list[int]], defaultdict[int, list[int]]]:
    """Starts and rows, in order of time, of the operators with each of PyTorch's numbers."""
    rows = np.flatnonzero(trace.roles(Role.OPERATOR) & (trace.slice_process == process))
    rows = rows[np.argsort(trace.slices.start_ns[rows], kind="stable")]
    s = trace.slices
    texts = trace.arguments.texts(s.args_start[rows], s.args_length[rows])
    starts: defaultdict[int, list[int]] = defaultdict(list)
    found: defaultdict[int, list[int]] = defaultdict(list)
    for row, start, text in zip(rows.tolist(), s.start_ns[rows].tolist(), texts, strict=True):
        match = _SEQUENCE_NUMBER.search(text)
        if match:
            starts[int(match[1])].append(start)
            found[int(match[1])].append(row)
    return starts, found
