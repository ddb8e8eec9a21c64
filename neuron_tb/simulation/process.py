"""Writes captures that look like TorchNeuron's, from a script of operators and their lengths.

Nothing here measures anything. A script (``rmsnorm/make.py``, ``training/make.py``) says which
operators ran and how long each took; this module
gives every operator its three stages

1. the framework operator on the host thread (``trace.json``: ``cpu_op``, with its dispatch,
   ``privateuse1_runtime``, and the window that the host saw, ``privateuse1_driver``),
2. ``nrta_execute_schedule`` in the Neuron runtime (``system_profile.json``), and
3. ``nc_exec_running`` on the NeuronCore (``system_profile.json``),

and the identifiers that join them. Times are integer nanoseconds since the Unix epoch, lengths
in the scripts are microseconds, and the same script gives the same bytes on every run.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from neuron_tb.simulation.tensors import Input, described

Json = dict[str, Any]

BASE_NS = 1_767_189_312_000_000_000
"""Kineto's ``baseTimeNanoseconds``: the epoch rounded down to a multiple of 7,889,238 s."""

_COMPUTE_UNIT, _COLLECTIVES_UNIT = 1, 2  # the upper 16 bits of a sequence id


def nanoseconds(us: float) -> int:
    """Whole nanoseconds of a length in microseconds."""
    return round(us * 1000)


@dataclass(frozen=True)
class Core:
    """The logical NeuronCore of a process, and the clock of its hardware.

    ``physical``: one physical core (LNC1) or two (LNC2). ``worker_gid``: number of the logical
    core over all processes. ``clock_zero_ns``: the host's time when the core's counter was 0.
    """

    physical: tuple[int, ...] = (0,)
    worker_gid: int = 0
    clock_zero_ns: int = BASE_NS


class Process:
    """One profiled process on one logical NeuronCore, and everything that it recorded.

    ``events``: of trace.json. ``rows``: of system_profile.json. ``slowdown`` stretches every
    length, so that two ranks of one script differ; ``spread`` varies the executions' lengths.
    """

    def __init__(
        self,
        host: str,
        pid: int,
        start_ns: int,
        core: Core,
        *,
        rank: int = 0,
        world_size: int = 1,
        slowdown: float = 1.0,
        spread: float = 0.0,
    ) -> None:
        self.host, self.pid, self.start_ns, self.core = host, pid, start_ns, core
        self.rank, self.world_size = rank, world_size
        self.slowdown, self.spread = slowdown, spread
        self.events: list[Json] = []
        self.rows: list[Json] = []
        self.flows: list[Json] = []
        self.threads: list[Thread] = []
        self.worker_free_ns = start_ns
        self.memory = Memory(self)
        self._random = random.Random(pid)
        self._external_ids = self._flow_ids = self._frames = 0
        self._sequence = {_COMPUTE_UNIT: 28, _COLLECTIVES_UNIT: 6}
        self._exec_ids = 9  # earlier numbers went to the steps before the profiler started

    def thread(self, tid: int, name: str = "python") -> Thread:
        """A host thread whose time starts with the capture."""
        self.threads.append(Thread(self, tid, name))
        return self.threads[-1]

    def length(self, us: float, spread: float = 0.0) -> int:
        """Nanoseconds of a length on this process, varied by up to ``spread`` (0.1: 10 %)."""
        return nanoseconds(us * self.slowdown * (1 + spread * (2 * self._random.random() - 1)))

    def next_external_id(self) -> int:
        """A new ``External id``."""
        self._external_ids += 1
        return self._external_ids

    def next_frame(self) -> int:
        """A new ``Python id``."""
        self._frames += 1
        return self._frames

    def next_execution(self, unit: int) -> tuple[int, int]:
        """New (sequence id, exec id): the runtime's number of the request, and the core's."""
        self._sequence[unit] += 1
        self._exec_ids += 1
        return (unit << 48) | self._sequence[unit], self._exec_ids

    def row(self, source: str, name: str, start_ns: int, duration_ns: int, **keys: Any) -> None:
        """One row of the system profile; ``source`` is neuron_rt or neuron_hw."""
        self.rows.append(
            {
                "name": name,
                "timestamp": start_ns,
                "duration": duration_ns,
                "timestamp_unit": "ns",
                "trace_event_source": source,
                "instance_id": self.host,
                "process_id": str(self.pid),
                "worker_gid": self.core.worker_gid,
                "lnc_idx": 0,
                "id": len(self.rows) + 1,
                **keys,
            }
        )

    def arrow(self, start: Json, end: Json) -> None:
        """The ``fwdbwd`` arrow from a forward operator to its backward node."""
        self._flow_ids += 1
        for phase, event in (("s", start), ("f", end)):
            flow = {"ph": phase, "id": self._flow_ids, "cat": "fwdbwd", "name": "fwdbwd"}
            flow.update({key: event[key] for key in ("pid", "tid", "ts")})
            self.flows.append(flow | ({"bp": "e"} if phase == "f" else {}))


@dataclass
class Execution:
    """One execution of a NeuronCore, from its schedule call on.

    ``start_ns``: when the core starts. Nothing is recorded until ``finish``.
    """

    process: Process
    name: str
    external_id: int
    cache_key: str
    sequence_id: int
    exec_id: int
    scheduled_ns: int
    picked_ns: int
    start_ns: int
    worker_tid: int
    details: list[tuple[str, int, int, Json]] = field(default_factory=list)

    def detail(self, name: str, start_ns: int, end_ns: int, **keys: Any) -> None:
        """A part of the execution that the hardware reports, on the first physical core."""
        self.details.append((name, start_ns, end_ns, keys))

    def finish(self, end_ns: int) -> int:
        """Record the execution; returns when the host knows that it is done."""
        self._on_the_core(end_ns)
        done_ns = self._in_the_runtime(end_ns)
        window = {"External id": self.external_id, "nrt_sequence_id": self.sequence_id}
        self.process.events.append(
            {
                "ph": "X",
                "cat": "privateuse1_driver",
                "name": self.name,
                "pid": 0,
                "tid": 0,
                "ts": self.scheduled_ns,
                "dur": done_ns - self.scheduled_ns,
                "args": {**window, "neff_cache_key": self.cache_key},
            }
        )
        return done_ns

    def _on_the_core(self, end_ns: int) -> None:
        process, core = self.process, self.process.core
        model = self._model()
        for number, physical in enumerate(core.physical):
            # The two physical cores of LNC2 neither start nor stop in the same nanosecond.
            start, end = self.start_ns + 180 * number, end_ns - 120 * (len(core.physical) - 1)
            end += 120 * number
            process.row(
                "neuron_hw",
                "nc_exec_running",
                start,
                end - start,
                device_core_idx=physical,
                exec_id=self.exec_id,
                flow_id=[str(self.exec_id)],
                nc_start_timestamp_ns=start - core.clock_zero_ns,
                nc_stop_timestamp_ns=end - core.clock_zero_ns,
                **model,
            )
        for name, start, end, keys in self.details:
            process.row(
                "neuron_hw",
                name,
                start,
                end - start,
                device_core_idx=core.physical[0],
                exec_id=self.exec_id,
                nc_start_timestamp_ns=start - core.clock_zero_ns,
                nc_stop_timestamp_ns=end - core.clock_zero_ns,
                **keys,
            )
        read_ns = end_ns + process.length(1.6, 0.2)
        process.row(
            "neuron_hw",
            "timestamp_sync_point",
            read_ns,
            0,
            exec_id=self.exec_id,
            cpu_timestamp_ns=read_ns,
            nc_timestamp_ns=read_ns - core.clock_zero_ns,
        )

    def _in_the_runtime(self, end_ns: int) -> int:
        process = self.process
        keys = {"thread_id": self.worker_tid, "exec_id": self.exec_id, **self._model()}
        keys["flow_id"] = [str(self.sequence_id), str(self.exec_id)]
        prepared_ns = self.start_ns - nanoseconds(2.8)
        waited_ns = end_ns + process.length(2.4, 0.2)
        done_ns = waited_ns + process.length(4.2, 0.2)
        for name, start, end in (
            ("kbl_exec_pre", self.picked_ns, prepared_ns),
            ("kbl_exec_wait", prepared_ns, waited_ns),
            ("kbl_exec_post", waited_ns, done_ns),
        ):
            process.row("neuron_rt", name, start, end - start, **keys)
        process.worker_free_ns = done_ns
        return done_ns

    def _model(self) -> Json:
        digest = hashlib.sha256(self.cache_key.encode()).hexdigest()
        return {
            "model_id": int(digest[:12], 16),
            "model_name": f"neff_{digest[:16]}_vnc_0.neff",
        }


class Thread:
    """One host thread. Ranges nest because they are ``with`` blocks; time passes by ``spend``."""

    def __init__(self, process: Process, tid: int, name: str) -> None:
        self.process, self.tid, self.name = process, tid, name
        self.now_ns = process.start_ns
        self._operators: list[int] = []
        self._frames: list[int] = []

    def spend(self, us: float, spread: float = 0.0) -> None:
        """Let time pass."""
        self.now_ns += self.process.length(us, spread)

    def wait_until(self, time_ns: int) -> None:
        """Let time pass until ``time_ns``, if that is later."""
        self.now_ns = max(self.now_ns, time_ns)

    @contextmanager
    def range(self, category: str, name: str, args: Json) -> Iterator[Json]:
        """A complete event of trace.json around the block."""
        event: Json = {"ph": "X", "cat": category, "name": name, "pid": self.process.pid}
        event |= {"tid": self.tid, "ts": self.now_ns, "dur": 0, "args": args}
        self.process.events.append(event)
        yield event
        event["dur"] = self.now_ns - event["ts"]

    @contextmanager
    def operator(
        self,
        name: str,
        inputs: Sequence[Input] = (),
        sequence: int | None = None,
        forward_thread: int = 0,
        category: str = "cpu_op",
        **more: Any,
    ) -> Iterator[Json]:
        """A framework operator around the block; device work in it gets its ``External id``."""
        args: Json = {"External id": self.process.next_external_id()}
        if sequence is not None:
            args |= {"Sequence number": sequence, "Fwd thread id": forward_thread}
        args |= {"Record function id": 0, **(described(inputs) if inputs else {}), **more}
        self._operators.append(args["External id"])
        with self.range(category, name, args) as event:
            yield event
        self._operators.pop()

    @contextmanager
    def annotation(self, name: str, inputs: Sequence[Input] = ()) -> Iterator[Json]:
        """A named range (``record_function``), such as ``ProfilerStep#0``."""
        with self.operator(name, inputs, category="user_annotation") as event:
            yield event

    @contextmanager
    def frame(self, name: str, module: int | None = None) -> Iterator[Json]:
        """A Python function, or the call of an ``nn.Module``."""
        number = self.process.next_frame()
        args: Json = {"Python parent id": self._frames[-1] if self._frames else None}
        args |= {"Python id": number} | ({} if module is None else {"Python module id": module})
        self._frames.append(number)
        with self.range("python_function", name, args) as event:
            yield event
        self._frames.pop()

    @contextmanager
    def runtime(self, name: str, **keys: Any) -> Iterator[None]:
        """A call of this thread into the Neuron runtime around the block."""
        start_ns = self.now_ns
        yield
        keys = {"thread_id": self.tid, **keys}
        self.process.row("neuron_rt", name, start_ns, self.now_ns - start_ns, **keys)

    def schedule(
        self, name: str, inputs: Sequence[Input] = (), us: float = 6.0, collective: bool = False
    ) -> Execution:
        """Hand one execution to the runtime; the call returns long before the work is done."""
        process = self.process
        sequence_id, exec_id = process.next_execution(
            _COLLECTIVES_UNIT if collective else _COMPUTE_UNIT
        )
        external_id = self._operators[-1]
        args = {"External id": external_id, "nrt_sequence_id": sequence_id}
        with self.range("privateuse1_runtime", name, args):
            self.spend(0.15 * us)
            scheduled_ns = self.now_ns
            keys = {"nrta_seq_id": sequence_id, "flow_id": [str(sequence_id)]}
            with self.runtime("nrta_execute_schedule", **keys):
                self.spend(0.7 * us)
            handed_over_ns = self.now_ns
            self.spend(0.15 * us)
        # A worker of the runtime takes one request after the other.
        ready_ns = handed_over_ns + process.length(5.0, 0.2)
        picked_ns = max(ready_ns, process.worker_free_ns + process.length(1.5, 0.4))
        start_ns = picked_ns + process.length(6.3, 0.25) + nanoseconds(2.8)
        return Execution(
            process,
            name,
            external_id,
            _cache_key(name, inputs),
            sequence_id,
            exec_id,
            scheduled_ns,
            picked_ns,
            start_ns,
            process.pid + 9,
        )

    def execute(
        self, name: str, device_us: float, inputs: Sequence[Input] = (), us: float = 6.0
    ) -> int:
        """Schedule an execution of this length; returns when the host knows that it is done."""
        execution = self.schedule(name, inputs, us)
        length_ns = self.process.length(device_us, self.process.spread)
        return execution.finish(execution.start_ns + length_ns)


def _cache_key(name: str, inputs: Sequence[Input]) -> str:
    """A key in the form that AWS's screenshots show: operator, inputs, hash."""
    lists = [v if isinstance(v, tuple) else (v,) for v in inputs if not isinstance(v, str)]
    tensors = [tensor for value in lists for tensor in value]
    shapes = "_".join(
        f"[{','.join(map(str, t.shape))}]:{t.dtype.removeprefix('c10::')}" for t in tensors[:4]
    )
    text = f"{name.removeprefix('aten::')}--_{shapes}_i{len(tensors)}"
    return f"{text}:{hashlib.sha256(text.encode()).hexdigest()}"


class Memory:
    """PyTorch's ``[memory]`` instants of one process, and how much is in use."""

    def __init__(self, process: Process) -> None:
        self.events: list[Json] = []
        self.in_use = {"cpu": 0, "neuron": 0}
        self._process = process
        self._held: dict[tuple[str, str], tuple[int, int]] = {}
        self._next = {"cpu": 0x5555_0000_0000, "neuron": 0x2000_0000}
        self._reserved = 0

    def hold(self, device: str, name: str, size: int) -> None:
        """Memory in use since before the profiler started: no event."""
        self._place(device, name, size)
        self.in_use[device] += size

    def allocate(self, thread: Thread, device: str, name: str, size: int) -> None:
        """Allocate ``size`` bytes under a name."""
        self._record(thread, device, self._place(device, name, size), size)

    def free(self, thread: Thread, device: str, *names: str) -> None:
        """Free what was allocated under these names."""
        for name in names:
            address, size = self._held.pop((device, name))
            self._record(thread, device, address, -size)

    def _place(self, device: str, name: str, size: int) -> int:
        address = self._next[device]
        self._held[device, name] = (address, size)
        self._next[device] += -(-size // 512) * 512
        return address

    def _record(self, thread: Thread, device: str, address: int, size: int) -> None:
        thread.spend(0.2)
        self.in_use[device] += size
        on_device = device == "neuron"
        block = 20 << 20  # the allocator takes device memory in blocks and keeps them
        if on_device:
            self._reserved = max(self._reserved, -(-self.in_use[device] // block) * block)
        args = {
            "Total Reserved": self._reserved if on_device else 0,
            "Total Allocated": self.in_use[device],
            "Bytes": size,
            "Device Id": 0 if on_device else -1,
            "Device Type": 20 if on_device else 0,
            "Addr": address,
        }
        event: Json = {"ph": "i", "cat": "cpu_instant_event", "s": "t", "name": "[memory]"}
        event |= {"pid": self._process.pid, "tid": thread.tid, "ts": thread.now_ns, "args": args}
        self.events.append(event)
