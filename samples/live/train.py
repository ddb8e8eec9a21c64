"""A small training loop, profiled as for a GPU: nothing in it speaks of Neuron but the device.

``neuron-tb demo --live`` runs it on a simulated device.
"""

import sys

import torch
from torch.profiler import (
    ProfilerActivity,
    profile,
    record_function,
    schedule,
    tensorboard_trace_handler,
)


class RMSNorm(torch.nn.Module):
    """Of plain operators: each is an execution of its own."""

    def __init__(self, width):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(width))

    def forward(self, x):
        """Normalized rows of ``x``."""
        return x * torch.rsqrt((x * x).mean(-1, keepdim=True) + 1e-6) * self.weight


def main(directory, device):
    """Train ten steps; the profile records steps 3 to 5."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(
        torch.nn.Linear(64, 128), RMSNorm(128), torch.nn.ReLU(), torch.nn.Linear(128, 10)
    ).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    with profile(
        activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA],
        schedule=schedule(wait=2, warmup=1, active=3, repeat=1),
        on_trace_ready=tensorboard_trace_handler(directory),
        profile_memory=True,
    ) as profiler:
        for _ in range(10):
            inputs, labels = torch.randn(32, 64), torch.randint(10, (32,))
            with record_function("forward"):
                outputs = model(inputs.to(device))
                loss = torch.nn.functional.cross_entropy(outputs, labels.to(device))
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            profiler.step()
    table = profiler.key_averages().table(sort_by="self_cuda_time_total", row_limit=12)
    sys.stdout.write(f"{table}\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
