"""Captures of many ranks on several hosts, in AWS's layout."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from neuron_tb.simulation.files import write_system_profile, write_trace
from neuron_tb.simulation.process import BASE_NS, Core, Process
from neuron_tb.simulation.tensors import Tensor

SYNTHETIC = "made up by a test; not a measurement"
START_NS = BASE_NS + 1_000_000_000_000
SHAPE = Tensor((128, 128))


def write_cluster(
    root: Path,
    hosts: int = 2,
    ranks_per_host: int = 2,
    steps: Sequence[int] = (3, 4),
    operators: int = 3,
    skew_ns: int = 0,
) -> list[Path]:
    """The process directories of all ranks; the same process ids and link ids on every host.

    ``operators``: multiplications per step, before the step's all-reduce. ``skew_ns``: how much
    later than the first every further host's clock is.
    """
    return [
        write_rank(root, host, local, hosts * ranks_per_host, host * ranks_per_host + local, steps,
                   operators, skew_ns * host)
        for host in range(hosts)
        for local in range(ranks_per_host)
    ]  # fmt: skip


def write_rank(
    root: Path,
    host: int,
    local: int,
    world_size: int,
    rank: int,
    steps: Sequence[int] = (3, 4),
    operators: int = 3,
    skew_ns: int = 0,
) -> Path:
    """One rank's process directory, with trace.json and its own system profile."""
    process = Process(
        f"i-0cluster{host:06d}",
        500 + local,
        START_NS + 7_000 * rank + skew_ns,
        Core((2 * local, 2 * local + 1), local, BASE_NS + skew_ns),
        rank=rank,
        world_size=world_size,
        slowdown=1 + 0.01 * rank,
    )
    main = process.thread(process.pid)
    process.memory.hold("neuron", "parameters", SHAPE.bytes)
    for number in steps:
        with main.annotation(f"ProfilerStep#{number}"):
            done_ns = 0
            for operator in range(operators):
                process.memory.allocate(main, "neuron", f"{number}.{operator}", SHAPE.bytes)
                with main.operator("aten::mul", [SHAPE, SHAPE]):
                    main.spend(3.0)
                    done_ns = main.execute("aten::mul", 40.0, [SHAPE, SHAPE])
            # All ranks leave the all-reduce at one moment of the true time.
            begin_ns = START_NS + skew_ns + (number - steps[0] + 1) * 600_000 * operators
            main.now_ns = max(main.now_ns, begin_ns - 100_000)
            with main.operator("c10d::allreduce_", [SHAPE]):
                main.spend(3.0)
                call = main.schedule("c10d::allreduce_", [SHAPE], collective=True)
                start_ns, end_ns = call.start_ns + 5_000, begin_ns + 50_000 + 200 * rank
                call.detail("cc_exec_barrier", start_ns, begin_ns, op_id=number)
                call.detail("cc_running", begin_ns, end_ns, op_id=number, algorithm="ring")
                done_ns = max(done_ns, call.finish(end_ns + 1_000))
            main.now_ns = max(main.now_ns, done_ns)
            main.spend(10.0)
            for operator in range(operators):
                process.memory.free(main, "neuron", f"{number}.{operator}")
        main.spend(20.0)
    path = write_trace(root, process, SYNTHETIC)
    samples = {
        "cpu_util": [
            {"cpu_id": "average", "duration": 0, "instance_id": process.host, "util": 10.0 + rank}
            | {"timestamp": process.start_ns}
        ]
    }
    write_system_profile(
        path.parent / "system_profile.json",
        [process],
        SYNTHETIC,
        hbm_bytes=24 << 30,
        samples=samples,
    )
    return path.parent.parent
