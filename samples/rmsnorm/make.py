"""Re-creates AWS's RMSNorm example as three captures: naive, rms_norm, compiled.

The lengths on the device and the totals on the host are those of the table published in
"Profiling TorchNeuron (Part 1): System-level profiling on AWS Trainium", by AWS on the Hugging
Face blog. Everything else (when each thing started, how long a call into the runtime took) is
made up around them.

    python -m neuron_tb.samples.rmsnorm.make [DIR]
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from neuron_tb.simulation.files import write_system_profile, write_trace
from neuron_tb.simulation.process import BASE_NS, Core, Process, Thread
from neuron_tb.simulation.tensors import Input, Tensor

SYNTHETIC = "re-created from the published table; not a measurement"
HOST = "i-0synthetic0000001"
START_NS = 1_768_471_200_123_456_789  # 15 January 2026
HBM_BYTES = 16 << 30

X = Tensor((4, 512))
ROW = Tensor((4, 1))
WEIGHT = Tensor((512,))


@contextmanager
def profiled_iteration(thread: Thread) -> Iterator[list[int]]:
    """One profiled step; the block appends when each execution is done, the end waits for all."""
    done: list[int] = []
    thread.spend(118.4)
    with thread.annotation("ProfilerStep#0"):
        thread.spend(21.3)
        yield done
        thread.spend(9.8)
        with thread.annotation("torch.neuron.synchronize()"):
            thread.wait_until(max(done))
            thread.spend(3.1)
        thread.spend(11.6)
    thread.spend(64.2)


def naive(thread: Thread) -> None:
    """``x * torch.rsqrt((x * x).mean(-1, keepdim=True) + eps) * weight``, operator by operator."""
    scalar = Tensor((), "double")

    calls: list[tuple[str, list[Input], float, float]] = [
        # operator, inputs, us on the host, us on the device
        ("aten::mul", [X, X], 29.4, 402.1),
        ("aten::mean", [X, "[-1]", "True", ""], 22.7, 340.8),
        ("aten::add", [ROW, scalar, "1"], 20.6, 434.6),
        ("aten::rsqrt", [ROW], 16.9, 415.0),
        ("aten::mul", [X, ROW], 18.2, 389.6),
        ("aten::mul", [X, WEIGHT], 17.2, 372.8),
    ]
    with profiled_iteration(thread) as done:
        for name, inputs, host_us, device_us in calls:
            with thread.operator(name, inputs, sequence=0):
                thread.spend(host_us - 9.0)
                done.append(thread.execute(name, device_us, inputs, us=8.0))
                thread.spend(1.0)
            thread.spend(4.0, spread=0.3)


def rms_norm(thread: Thread) -> None:
    """``torch.rms_norm(x, (512,), weight, eps)``: one fused kernel."""
    inputs: list[Input] = [X, "[512]", WEIGHT, "9.9999999999999995e-07"]
    with profiled_iteration(thread) as done, thread.operator("aten::rms_norm", inputs, sequence=0):
        thread.spend(12.9)
        with thread.operator("aten::_fused_rms_norm", inputs, sequence=0):
            thread.spend(22.4)
            done.append(thread.execute("aten::_fused_rms_norm", 403.3, inputs, us=8.0))
            thread.spend(1.4)
        thread.spend(3.3)


def compiled(thread: Thread) -> None:
    """The naive function under ``torch.compile``: one graph."""
    with profiled_iteration(thread) as done:
        with thread.operator("TorchDynamo Cache Lookup"):
            thread.spend(7.8)
        thread.spend(1.3)
        with thread.operator("Torch-Compiled Region: 0/0"):
            thread.spend(8.6)
            with thread.operator("Pregraph bytecode"):
                thread.spend(2.4)
            thread.spend(11.0)
            with thread.operator("AOTDispatcher Runtime Wrapper Prologue"):
                thread.spend(3.1)
            thread.spend(48.1)
            done.append(thread.execute("model_default_0", 375.5, [X, WEIGHT], us=9.0))
            thread.spend(8.0)


CAPTURES: dict[str, tuple[int, Callable[[Thread], None]]] = {
    "naive": (4101, naive),
    "rms_norm": (4102, rms_norm),
    "compiled": (4103, compiled),
}
"""Capture: its process id and its script."""


def make(directory: Path) -> list[Path]:
    """Write the three captures below ``directory``; returns the files."""
    written = []
    for number, (name, (pid, script)) in enumerate(CAPTURES.items()):
        start_ns = START_NS + number * 45_000_000_000
        core = Core(clock_zero_ns=BASE_NS + 1_281_000_000_000_000)
        process = Process(HOST, pid, start_ns, core)
        script(process.thread(pid))
        trace = write_trace(directory / name, process, SYNTHETIC, record_shapes=1)
        profile = trace.with_name("system_profile.json")
        write_system_profile(
            profile,
            [process],
            SYNTHETIC,
            hbm_bytes=HBM_BYTES,
            documented_spelling=name != "compiled",
        )
        written += [trace, profile]
    return written


if __name__ == "__main__":
    here = Path(__file__).resolve().parent
    for path in make(Path(sys.argv[1]) if len(sys.argv) > 1 else here):
        sys.stdout.write(f"{path}\n")
