"""Makes up a training capture: an MLP on two ranks, three profiled steps, one all-reduce each.

Every length is invented, in the range of the ones that AWS has published for small operators.

    python -m neuron_tb.samples.training.make [DIR]
"""

from __future__ import annotations

import math
import random
import sys
from collections.abc import Generator, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from neuron_tb.simulation.files import write_system_profile, write_trace
from neuron_tb.simulation.process import BASE_NS, Core, Json, Process, Thread, nanoseconds
from neuron_tb.simulation.tensors import Input, Tensor

SYNTHETIC = "made up by samples/training/make.py; not a measurement"
HOST = "i-0synthetic0000002"
START_NS = 1_768_474_800_250_000_000  # 15 January 2026
STEPS = (3, 4, 5)
HBM_BYTES = 24 << 30
HOST_BYTES = 512 << 30

X = Tensor((256, 1024))
HIDDEN = Tensor((256, 4096))
WEIGHTS = (Tensor((4096, 1024)), Tensor((1024, 4096)))
BIASES = (Tensor((4096,)), Tensor((1024,)))
PARAMETERS = (WEIGHTS[0], BIASES[0], WEIGHTS[1], BIASES[1])
LOSS = Tensor(())
BUCKET = Tensor((sum(p.bytes // 2 for p in PARAMETERS),))
"""All gradients in one flat tensor, for one all-reduce a step."""


class Rank(Process):
    """One rank: its main thread, the autograd engine's thread, and its memory before step 3."""

    def __init__(self, rank: int) -> None:
        core = Core((2 * rank, 2 * rank + 1), rank, BASE_NS + 1_284_000_000_000_000 + rank)
        super().__init__(
            HOST,
            2101 + rank,
            START_NS + 180_000 * rank,
            core,
            rank=rank,
            world_size=2,
            slowdown=1.0 + 0.06 * rank,
            spread=0.02,
        )
        self.main = self.thread(self.pid)
        self.autograd = self.thread(self.pid + 31, "pt_autograd_0")
        self.sequence = 120
        self.memory.hold("neuron", "parameters", BUCKET.bytes)
        self.memory.hold("neuron", "AdamW's two moments", 2 * BUCKET.bytes)
        self.memory.hold("neuron", "gradients", BUCKET.bytes)

    def next_sequence(self) -> int:
        """Autograd's number of a forward operator."""
        self.sequence += 1
        return self.sequence


def train_step(rank: Rank, number: int) -> Generator[int, int, None]:
    """One step. Yields when the rank is ready for the all-reduce, is sent when all ranks are."""
    main = rank.main
    with main.annotation(f"ProfilerStep#{number}"), main.frame("train.py(31): train_step"):
        main.spend(30.0)
        with main.annotation("Optimizer.zero_grad#AdamW.zero_grad"):
            main.spend(9.0)
            rank.memory.free(main, "neuron", "gradients")
        load_batch(rank)
        forwards = forward(rank)
        backward(rank, forwards)
        yield from all_reduce(rank)
        done_ns = optimizer_step(rank)
        read_loss(rank, done_ns)
        main.spend(40.0, spread=0.2)
    main.spend(15.0)


def load_batch(rank: Rank) -> None:
    """Two host tensors go to the device: inputs and targets."""
    main = rank.main
    with main.frame("train.py(19): next_batch"):
        main.spend(160.0, spread=0.2)
        for name in ("inputs", "targets"):
            rank.memory.allocate(main, "cpu", name, X.bytes)
            with main.operator("aten::to", [X, "15", "False", "False", ""]):
                main.spend(2.0)
                with main.operator("aten::_to_copy", [X, "15", "", "", "", "False", ""]):
                    main.spend(2.0)
                    rank.memory.allocate(main, "neuron", name, X.bytes)
                    with main.operator("aten::copy_", [X, X, "False"]):
                        main.spend(3.0)
                        with main.runtime("nrt_tensor_write", size=str(X.bytes), tensor_name=name):
                            main.spend(52.0, spread=0.1)
                        main.spend(1.5)
                    main.spend(1.0)
                main.spend(1.0)
            rank.memory.free(main, "cpu", name)


def forward(rank: Rank) -> list[Json]:
    """Linear, ReLU, linear, loss; returns the operators that have a backward node."""
    main, made = rank.main, []
    with main.frame("nn.Module: MLP_0", module=0), main.frame("train.py(12): forward"):
        main.spend(6.0)
        made += linear(rank, 0, X, HIDDEN)
        with main.operator("aten::relu", [HIDDEN], sequence=rank.next_sequence()) as relu:
            main.spend(7.0)
            rank.memory.allocate(main, "neuron", "relu", HIDDEN.bytes)
            main.execute("aten::relu", 391.0, [HIDDEN])
            main.spend(1.0)
        made.append(relu)
        made += linear(rank, 1, HIDDEN, X)
    main.spend(5.0)
    inputs: list[Input] = [X, X, "1"]
    with main.operator("aten::mse_loss", inputs, sequence=rank.next_sequence()) as loss:
        main.spend(9.0)
        rank.memory.allocate(main, "neuron", "loss", LOSS.bytes)
        main.execute("aten::mse_loss", 402.0, inputs)
        main.spend(1.0)
    return [*made, loss]


def linear(rank: Rank, layer: int, given: Tensor, made: Tensor) -> list[Json]:
    """``nn.Linear``: a transposed view of the weight, then aten::addmm."""
    main, weight, bias = rank.main, WEIGHTS[layer], BIASES[layer]
    turned = Tensor(weight.shape[::-1])
    with main.frame(f"nn.Module: Linear_{layer}", module=layer + 1):
        main.spend(4.0)
        sequence = rank.next_sequence()
        with main.operator("aten::linear", [given, weight, bias], sequence=sequence):
            main.spend(2.0)
            with main.operator("aten::t", [weight], sequence=sequence) as t:
                main.spend(3.5)
            inputs: list[Input] = [bias, given, turned, "1", "1"]
            with main.operator("aten::addmm", inputs, sequence=rank.next_sequence()) as addmm:
                main.spend(8.0)
                rank.memory.allocate(main, "neuron", f"linear {layer}", made.bytes)
                main.execute("aten::addmm", 518.0, inputs)
                main.spend(1.0)
            main.spend(1.0)
    return [t, addmm]


@contextmanager
def backward_node(thread: Thread, name: str, forward_event: Json) -> Iterator[None]:
    """The engine evaluates the node of one forward operator."""
    sequence = forward_event["args"]["Sequence number"]
    evaluate = f"autograd::engine::evaluate_function: {name}"
    with thread.operator(evaluate, sequence=sequence, forward_thread=1):
        thread.spend(1.5)
        with thread.operator(name, sequence=sequence, forward_thread=1) as event:
            thread.process.arrow(forward_event, event)
            thread.spend(1.5)
            yield
        thread.spend(1.0)
    thread.spend(2.0)


def backward(rank: Rank, forwards: list[Json]) -> None:
    """The autograd engine's thread works while the main thread waits for it."""
    engine, memory = rank.autograd, rank.memory
    t0, addmm0, relu, t1, addmm1, loss = forwards

    def run(name: str, device_us: float, result: str, size: int, *inputs: Tensor) -> None:
        with engine.operator(name, inputs):
            engine.spend(6.0)
            memory.allocate(engine, "neuron", result, size)
            engine.execute(name, device_us, inputs)
            engine.spend(1.0)

    rank.main.spend(12.0)
    engine.wait_until(rank.main.now_ns + nanoseconds(14))
    memory.allocate(engine, "neuron", "gradients", BUCKET.bytes)
    with backward_node(engine, "MseLossBackward0", loss):
        run("aten::mse_loss_backward", 407.0, "d output", X.bytes, LOSS, X, X)
    with backward_node(engine, "AddmmBackward0", addmm1):
        run("aten::mm", 523.0, "d relu", HIDDEN.bytes, X, WEIGHTS[1])
        run("aten::mm", 561.0, "d weight 1", WEIGHTS[1].bytes, X, HIDDEN)
        run("aten::sum", 398.0, "d bias 1", BIASES[1].bytes, X)
    memory.free(engine, "neuron", "linear 1", "d output", "relu", "targets")
    with backward_node(engine, "TBackward0", t1):
        engine.spend(2.0)
    with backward_node(engine, "ReluBackward0", relu):
        run("aten::threshold_backward", 411.0, "d linear 0", HIDDEN.bytes, HIDDEN, HIDDEN)
    memory.free(engine, "neuron", "d relu", "linear 0")
    with backward_node(engine, "AddmmBackward0", addmm0):
        run("aten::mm", 566.0, "d weight 0", WEIGHTS[0].bytes, HIDDEN, X)
        run("aten::sum", 405.0, "d bias 0", BIASES[0].bytes, HIDDEN)
    memory.free(engine, "neuron", "d linear 0", "inputs")
    with backward_node(engine, "TBackward0", t0):
        engine.spend(2.0)
    # The gradients now lie in the flat bucket.
    memory.free(engine, "neuron", "d weight 1", "d bias 1", "d weight 0", "d bias 0")
    rank.main.wait_until(engine.now_ns + nanoseconds(9))


def all_reduce(rank: Rank) -> Generator[int, int, None]:
    """The gradients of both ranks are added; the faster rank waits in the barrier."""
    main = rank.main
    collective: Json = {"Collective name": "allreduce", "dtype": "BFloat16", "Rank": rank.rank}
    collective |= {"In msg nelems": BUCKET.shape[0], "Out msg nelems": BUCKET.shape[0]}
    collective |= {"In split size": "[]", "Out split size": "[]", "Group size": 2}
    collective |= {"Process Group Name": "0", "Process Group Description": "default_pg"}
    collective |= {"Process Group Ranks": "[0, 1]"}
    inputs: list[Input] = [(BUCKET,), "", "", "", "False", "-1"]
    with main.operator("c10d::allreduce_", inputs, sequence=rank.sequence + 1):
        main.spend(11.0)
        with main.operator("record_param_comms", **collective):
            main.spend(4.0)
            with main.annotation("neuron:all_reduce", [BUCKET]):
                main.spend(3.0)
        execution = main.schedule("c10d::allreduce_", [(BUCKET,)], us=9.0, collective=True)
        main.spend(3.0)
    main.spend(8.0)
    started_ns = execution.start_ns + nanoseconds(5)
    together_ns = yield started_ns + nanoseconds(3)
    moved_ns = together_ns + nanoseconds(638.4)
    execution.detail("cc_exec_barrier", started_ns, together_ns, op_id=0)
    execution.detail(
        "cc_running", together_ns, moved_ns, op_id=0, gid=rank.core.worker_gid, algorithm="ring"
    )
    execution.finish(moved_ns + nanoseconds(4))


def optimizer_step(rank: Rank) -> int:
    """AdamW on all parameters in one kernel; returns when the host knows that it is done."""
    main = rank.main
    steps = tuple(Tensor((), "float") for _ in PARAMETERS)
    rates = ["0.001", "0.90000000000000002", "0.999", "0.01", "1e-08", "False", "False", "", ""]
    inputs: list[Input] = [PARAMETERS, PARAMETERS, PARAMETERS, PARAMETERS, "", steps, *rates]
    with main.annotation("Optimizer.step#AdamW.step"):
        main.spend(38.0, spread=0.1)
        with main.operator("aten::_fused_adamw_", inputs):
            main.spend(16.0)
            done_ns = main.execute("aten::_fused_adamw_", 1184.0, inputs)
            main.spend(2.0)
        main.spend(6.0)
    return done_ns


def read_loss(rank: Rank, done_ns: int) -> None:
    """``loss.item()``: the host waits for everything that was queued before."""
    main = rank.main
    with main.operator("aten::item", [LOSS]):
        main.spend(1.5)
        with main.operator("aten::_local_scalar_dense", [LOSS]):
            main.spend(2.0)
            with main.runtime("nrt_tensor_read", size=str(LOSS.bytes), tensor_name="loss"):
                with main.runtime("tensor_block_while_exec"):
                    main.wait_until(done_ns)
                main.spend(12.4)
            main.spend(1.0)
        main.spend(0.5)
    rank.memory.free(main, "neuron", "loss")


def run() -> list[Rank]:
    """Both ranks through all steps; they meet in each step's all-reduce."""
    ranks = [Rank(0), Rank(1)]
    for rank in ranks:
        rank.main.spend(90.0)
    for number in STEPS:
        running = [train_step(rank, number) for rank in ranks]
        together_ns = max([next(one) for one in running])
        for one in running:
            with suppress(StopIteration):
                one.send(together_ns)
    return ranks


def sampled(ranks: list[Rank]) -> dict[str, list[Json]]:
    """Host and device memory and CPU use, far more often than the real profiler's once a second."""
    end_ns = max(rank.main.now_ns for rank in ranks)
    noise = random.Random(2)
    samples: dict[str, list[Json]] = {"mem_usage": [], "cpu_util": [], "device_mem_usage": []}

    def add(table: str, time_ns: int, **values: float | int | str) -> None:
        row = {"instance_id": HOST, "timestamp": time_ns, "duration": 1, **values}
        samples[table].append(row)

    for time_ns in range(START_NS, end_ns, nanoseconds(3000)):
        used = 51_805_806_592 + 4096 * noise.randrange(4096)
        add("mem_usage", time_ns, usage=used, percent_usage=100 * used / HOST_BYTES)
        busy = [round(base + 3 * noise.random(), 4) for base in (95.0, 94.0, 6.0, 2.0)]
        for cpu, util in enumerate(busy):
            add("cpu_util", time_ns, cpu_id=str(cpu), util=util)
        # Not sum(): its rounding of floats changed in Python 3.12.
        add("cpu_util", time_ns, cpu_id="average", util=round(math.fsum(busy) / len(busy), 4))
    for rank in ranks:
        for time_ns, kinds in hbm_use(rank):
            place = {"device_idx": 0, "hbm_idx": rank.rank}
            add("device_mem_usage", time_ns, **place, total_bytes=sum(kinds.values()), **kinds)
    samples["device_mem_usage"].sort(key=lambda row: row["timestamp"])
    return samples


def hbm_use(rank: Rank) -> Iterator[tuple[int, dict[str, int]]]:
    """Bytes of HBM by kind, at the start and whenever the tensors' changed by over a MiB.

    The tensors are those that PyTorch's ``[memory]`` events know.
    """
    others = {
        "tensor_instructions_bytes": 1 << 20,
        "shared_scratchpad_bytes": 256 << 20,
        "collectives_bytes": 64 << 20,
        "dma_rings_runtime_bytes": 24 << 20,
    }
    shown = 4 * BUCKET.bytes
    yield rank.start_ns, {"tensors_bytes": shown, **others}
    for event in rank.memory.events:
        tensors = event["args"]["Total Allocated"]
        if event["args"]["Device Type"] == 20 and abs(tensors - shown) > 1 << 20:
            shown = tensors
            yield event["ts"], {"tensors_bytes": shown, **others}


def make(directory: Path) -> list[Path]:
    """Write the capture below ``directory``; returns the files."""
    ranks = run()
    options = {"record_shapes": 1, "profile_memory": 1, "with_stack": 1}
    written = [write_trace(directory, rank, SYNTHETIC, **options) for rank in ranks]
    profile = directory / "system_profile.json"
    write_system_profile(profile, ranks, SYNTHETIC, hbm_bytes=HBM_BYTES, samples=sampled(ranks))
    return [*written, profile]


if __name__ == "__main__":
    here = Path(__file__).resolve().parent
    for path in make(Path(sys.argv[1]) if len(sys.argv) > 1 else here):
        sys.stdout.write(f"{path}\n")
