"""Real clients of torch.profiler, as their users write them: ``clients.py NAME``; prints JSON."""

from __future__ import annotations

import collections
import gzip
import json
import sys
import time
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


def kernels_below(directory):
    found = collections.Counter()
    for path in sorted(Path(directory).rglob("*.json*")):
        if "neuron" in path.name.split(".") or "neuron_profile" in path.parts:
            continue
        opened = gzip.open if path.suffix == ".gz" else open
        with opened(path, "rt") as file:
            found.update(e.get("cat") for e in json.load(file)["traceEvents"])
    return found["kernel"]


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 2))

    def forward(self, x, labels=None):
        logits = self.layers(x)
        if labels is None:
            return logits
        return {"loss": nn.functional.cross_entropy(logits, labels), "logits": logits}


def accelerate():
    from accelerate import Accelerator
    from accelerate.utils import ProfileKwargs

    ready = tensorboard_trace_handler("logs")
    options = {"wait": 1, "warmup": 1, "active": 2, "repeat": 1}
    kwargs = ProfileKwargs(
        activities=["cpu", "cuda"], schedule_option=options, on_trace_ready=ready
    )
    accelerator = Accelerator(cpu=True, kwargs_handlers=[kwargs])
    model = Model().to("neuron")
    with accelerator.profile() as recorded:
        for _ in range(5):
            model(torch.randn(4, 8).to("neuron")).sum().backward()
            recorded.step()
    return {"kernels": kernels_below("logs"), "class": isinstance(recorded, torch.profiler.profile)}


def lightning():
    import lightning.pytorch as pl
    from lightning.pytorch.profilers import PyTorchProfiler

    class Module(pl.LightningModule):
        def __init__(self):
            super().__init__()
            self.model = Model()

        def training_step(self, batch, index):
            # The trainer runs on the CPU; the work that counts is the device's.
            x = batch[0].to("neuron")
            weight = self.model.layers[0].weight.detach().to("neuron")
            (x @ weight.t()).relu().sum().cpu()
            return self.model(batch[0]).sum()

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), lr=0.1)

    profiler = PyTorchProfiler(
        dirpath="logs",
        filename="profile",
        activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA],
        schedule=schedule(wait=1, warmup=1, active=2),
        record_shapes=True,
        sort_by_key="cuda_time_total",
    )
    data = torch.utils.data.DataLoader(
        torch.utils.data.TensorDataset(torch.randn(32, 8)), batch_size=4
    )
    trainer = pl.Trainer(
        max_epochs=1,
        accelerator="cpu",
        profiler=profiler,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(Module(), data)
    text = "".join(p.read_text() for p in Path("logs").glob("*.txt"))
    return {"kernels": kernels_below("logs"), "columns": "Self NEURON" in text}


def transformers():
    from transformers import Trainer, TrainerCallback, TrainingArguments

    class Profile(TrainerCallback):
        def __init__(self, recorded):
            self.recorded = recorded

        def on_step_end(self, args, state, control, **kwargs):
            weight = torch.ones(8, 8).to("neuron")
            torch.relu(weight @ weight).sum().cpu()
            self.recorded.step()

    rows = [{"x": torch.randn(8), "labels": torch.tensor(i % 2)} for i in range(32)]
    arguments = TrainingArguments(
        output_dir="out",
        use_cpu=True,
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
    return {"kernels": kernels_below("logs")}


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
    return {"kernels": kernels_below("bench_log")}


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
    begin = time.time()
    return {
        "kernels": kernels_below("."),
        "columns": "Self NEURON" in table and all("Self NEURON" in text for text in outputs),
        "cycles": len(outputs),
        "seconds": time.time() - begin,
    }


def main():
    sys.stdout.write(json.dumps(globals()[sys.argv[1]]()) + "\n")


if __name__ == "__main__":
    main()
