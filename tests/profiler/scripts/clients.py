"""Real clients of torch.profiler, as their users write them: ``clients.py NAME``; prints JSON."""

from __future__ import annotations

import collections
import gzip
import json
import sys
from pathlib import Path

import torch
from torch import nn
from torch.profiler import (
    ProfilerActivity,
    profile,
    record_function,
    schedule,
    tensorboard_trace_handler,
)


def answered(*patterns, **more):
    """What the traces of ``patterns`` hold, beside what the simulated cores did in all windows."""
    from neuron_tb.simulation.device import sim

    seen = collections.defaultdict(set)
    for path in sorted(p for pattern in patterns for p in Path().glob(pattern)):
        opened = gzip.open if path.suffix == ".gz" else open
        with opened(path, "rt") as file:
            for event in json.load(file)["traceEvents"]:
                if event.get("cat") in ("kernel", "gpu_memcpy"):
                    seen[event["cat"]].add(event["args"]["correlation"])
    done = [row for row in sim.truth() if row["session"]]
    kernels = {row["correlation"] for row in done if row["kind"] == "kernel"}
    copies = {row["correlation"] for row in done if row["kind"] != "kernel"}
    return {
        "kernels": len(seen["kernel"]),
        "all": seen["kernel"] == kernels and seen["gpu_memcpy"] == copies,
        "executed": len(kernels),
        "launches": sim.counters()["launches"],
        "unfinished": sim.counters()["unfinished"],
        **more,
    }


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 2))

    def forward(self, x, labels=None):
        logits = self.layers(x)
        if labels is None:
            return logits
        return {"loss": nn.functional.cross_entropy(logits, labels), "logits": logits}


def dataset():
    return torch.utils.data.TensorDataset(torch.randn(32, 8), torch.randint(2, (32,)))


def accelerate():
    from accelerate import Accelerator
    from accelerate.utils import ProfileKwargs

    kwargs = ProfileKwargs(
        activities=["cpu", "cuda"],
        schedule_option={"wait": 1, "warmup": 1, "active": 2, "repeat": 1},
        on_trace_ready=tensorboard_trace_handler("logs"),
    )
    accelerator = Accelerator(kwargs_handlers=[kwargs])
    model = Model()
    optimizer = torch.optim.AdamW(model.parameters())
    loader = torch.utils.data.DataLoader(dataset(), batch_size=4)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)

    def train(recorded):
        for x, labels in loader:
            accelerator.backward(model(x, labels)["loss"])
            optimizer.step()
            optimizer.zero_grad()
            recorded.step()

    with accelerator.profile() as recorded:
        train(recorded)
    # The other way that its documentation shows: no schedule, one trace for each process.
    with accelerator.profile(
        ProfileKwargs(activities=["cpu", "cuda"], output_trace_dir="one")
    ) as second:
        train(second)
    return answered(
        "logs/*.pt.trace.json",
        "one/profile_0.json",
        **{"class": isinstance(recorded, torch.profiler.profile)},
    )


def lightning():
    """Two runs: one asks for CUDA; one asks, as Lightning does by itself, only where CUDA is."""
    import lightning.pytorch as pl
    from lightning.pytorch.accelerators import Accelerator
    from lightning.pytorch.profilers import PyTorchProfiler
    from lightning.pytorch.strategies import SingleDeviceStrategy

    class Neuron(Accelerator):
        def setup_device(self, device):
            torch.neuron.set_device(device.index)

        def teardown(self):
            pass

        @staticmethod
        def parse_devices(devices):
            return devices

        @staticmethod
        def get_parallel_devices(devices):
            return [torch.device("neuron", i) for i in range(devices)]

        @staticmethod
        def auto_device_count():
            return torch.neuron.device_count()

        @staticmethod
        def is_available():
            return torch.neuron.is_available()

        @staticmethod
        def name():
            return "neuron"

    class Module(pl.LightningModule):
        def __init__(self):
            super().__init__()
            self.model = Model()

        def training_step(self, batch, index):
            return self.model(*batch)["loss"]

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), lr=0.1)

    columns = []
    for name, options in {
        "cuda": {"activities": [ProfilerActivity.CPU, ProfilerActivity.CUDA]},
        "default": {},
    }.items():
        profiler = PyTorchProfiler(
            dirpath=name,
            filename="profile",
            schedule=schedule(wait=1, warmup=1, active=2),
            record_shapes=True,
            sort_by_key="cuda_time_total",
            **options,
        )
        trainer = pl.Trainer(
            max_epochs=1,
            strategy=SingleDeviceStrategy(device="neuron:0", accelerator=Neuron()),
            profiler=profiler,
            logger=False,
            enable_checkpointing=False,
            enable_progress_bar=False,
            enable_model_summary=False,
        )
        trainer.fit(Module(), torch.utils.data.DataLoader(dataset(), batch_size=4))
        text = "".join(p.read_text() for p in Path(name).glob("*.txt"))
        columns.append("Self NEURON" in text)
    return answered("cuda/*.pt.trace.json", "default/*.pt.trace.json", columns=all(columns))


def transformers():
    from transformers import Trainer, TrainerCallback, TrainingArguments

    class Profile(TrainerCallback):
        def __init__(self, recorded):
            self.recorded = recorded

        def on_step_end(self, args, state, control, **kwargs):
            self.recorded.step()

    rows = [{"x": x, "labels": label} for x, label in dataset()]
    arguments = TrainingArguments(
        output_dir="out",
        report_to=[],
        per_device_train_batch_size=4,
        max_steps=6,
        save_strategy="no",
        disable_tqdm=True,
    )
    with profile(
        activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA],
        schedule=schedule(wait=1, warmup=1, active=2, repeat=1),
        on_trace_ready=tensorboard_trace_handler("logs"),
        profile_memory=True,
        with_stack=True,
    ) as recorded:
        Trainer(
            model=Model(), args=arguments, train_dataset=rows, callbacks=[Profile(recorded)]
        ).train()
    columns = "Self NEURON" in recorded.key_averages().table()
    return answered("logs/*.pt.trace.json", columns=columns, device=str(arguments.device))


def nanogpt_bench():
    """The shape of nanoGPT's bench.py with ``profile=True``."""
    device = "neuron"
    model = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True, dropout=0.0).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    wait, warmup, active = 1, 1, 2
    num_steps = wait + warmup + active
    with torch.profiler.profile(
        activities=[
            torch.profiler.ProfilerActivity.CPU,
            torch.profiler.ProfilerActivity.CUDA,
        ],
        schedule=torch.profiler.schedule(wait=wait, warmup=warmup, active=active, repeat=1),
        on_trace_ready=torch.profiler.tensorboard_trace_handler("./bench_log"),
        record_shapes=False,
        profile_memory=False,
        with_stack=False,
        with_flops=True,
        with_modules=False,
    ) as prof:
        for _ in range(num_steps):
            x = torch.randn(2, 4, 16).to(device)
            loss = model(x).sum()
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
            prof.step()
    return answered("bench_log/*.pt.trace.json")


def tutorial():
    """The loops of PyTorch's profiler tutorial and recipe."""
    model = Model().to("neuron")
    inputs = torch.randn(5, 8).to("neuron")
    activities = [ProfilerActivity.CPU, ProfilerActivity.CUDA, ProfilerActivity.XPU]
    with profile(activities=activities, profile_memory=True, record_shapes=True) as prof:  # noqa: SIM117
        with record_function("model_inference"):
            model(inputs)
    sort_by_keyword = "cuda_time_total"
    table = prof.key_averages(group_by_input_shape=True).table(
        sort_by=sort_by_keyword, row_limit=10
    )
    prof.export_chrome_trace("logs.json")
    outputs = []

    def trace_handler(p):
        outputs.append(p.key_averages().table(sort_by="self_cuda_time_total", row_limit=10))
        p.export_chrome_trace(f"trace_{p.step_num}.json")

    my_schedule = schedule(skip_first=2, wait=1, warmup=1, active=2, repeat=2)
    with profile(activities=activities, schedule=my_schedule, on_trace_ready=trace_handler) as p:
        for _ in range(10):
            model(inputs)
            p.step()
    return answered(
        "logs.json",
        *("trace_6.json", "trace_10.json"),
        columns="Self NEURON" in table and all("Self NEURON" in text for text in outputs),
        cycles=len(outputs),
    )


def main():
    sys.stdout.write(json.dumps(globals()[sys.argv[1]]()) + "\n")


if __name__ == "__main__":
    main()
