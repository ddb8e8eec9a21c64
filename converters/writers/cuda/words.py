"""CUDA's words for what a trace holds: kinds of device work, names of copies and collectives."""

from __future__ import annotations

import re
from enum import IntEnum

from neuron_tb.converters.model import Device
from neuron_tb.converters.model.hardware import chip_of

WINDOW_NOTE = "window: enqueue to completion as the host saw it, not device busy time"
"""What the arguments of a device row say where no device time was measured."""


class Kind(IntEnum):
    """What a device row is in CUDA's words."""

    KERNEL = 0
    MEMCPY = 1
    MEMSET = 2


CATEGORY_OF_KIND = {
    Kind.KERNEL: "kernel",
    Kind.MEMCPY: "gpu_memcpy",
    Kind.MEMSET: "gpu_memset",
}
CALL_OF_KIND = {
    Kind.KERNEL: "cudaLaunchKernel",
    Kind.MEMCPY: "cudaMemcpyAsync",
    Kind.MEMSET: "cudaMemsetAsync",
}


def device_label(device: Device, instance_type: str | None) -> str:
    """What to call a device: never hardware that nobody named, always that it is a translation."""
    if device.family == "neuron":
        chip = chip_of(instance_type).name if instance_type else "AWS Neuron"
        return f"{device.name} ({chip}, shown in CUDA terms)"
    return (
        device.name if device.family == "cuda" else f"{device.name} (translated into CUDA's terms)"
    )


_DIRECTIONS = (
    (re.compile(r"h(ost)?_?(to|2)_?d(evice)?|m2d|nrt_tensor_write", re.I), "HtoD"),
    (re.compile(r"d(evice)?_?(to|2)_?h(ost)?|d2m|nrt_tensor_read", re.I), "DtoH"),
    (re.compile(r"d(evice)?_?(to|2)_?d(evice)?", re.I), "DtoD"),
    (re.compile(r"p(eer)?_?(to|2)_?p(eer)?", re.I), "PtoP"),
)


def transfer_name(name: str, kind: Kind) -> str:
    """A copy's or fill's name in CUDA's words; with a direction only where the name tells it."""
    if kind is Kind.KERNEL or name.startswith(("Memcpy", "Memset")):
        return name
    if kind is Kind.MEMSET:
        return f"Memset ({name})"
    direction = next((d for pattern, d in _DIRECTIONS if pattern.search(name)), "Unknown")
    return f"Memcpy {direction} ({name})"


_COLLECTIVE_NAMESPACES = {
    *("c10d", "_c10d_functional", "c10d_functional", "nccl", "gloo", "neuron", "xla", "torch_xla"),
    *("rccl", "ccl", "hccl", "cc"),
}
_COLLECTIVES = {
    "allreduce": "all_reduce",
    "allgather": "all_gather",
    "reducescatter": "reduce_scatter",
    "broadcast": "broadcast",
    "reduce": "reduce",
    "alltoall": "all_to_all",
    "send": "send",
    "recv": "recv",
    "barrier": "barrier",
}
_SUFFIXES = re.compile(r"_?(coalesced|base|into_tensor|tensor|inplace|single|out)?_*$")
_NCCL_KERNEL = re.compile(
    r"nccl\w*Kernel_?(AllReduce|AllGather|ReduceScatter|Broadcast|Reduce|SendRecv|AllToAll)"
)


def collective(name: str) -> str | None:
    """Which collective an operator or device row of this name is (``all_reduce``, …), or None."""
    kernel = _NCCL_KERNEL.match(name)
    if kernel:
        return _COLLECTIVES.get(kernel[1].lower(), "send")
    space, _, short = name.strip().lower().replace("::", ":").rpartition(":")
    if not space and short.startswith("cc_"):
        space, short = "cc", short[3:]
    if space.split(":")[-1] not in _COLLECTIVE_NAMESPACES:
        return None
    short = short.lstrip("_")
    for text in (short.rstrip("_"), _SUFFIXES.sub("", short)):
        found = _COLLECTIVES.get(text.replace("_", ""))
        if found:
            return found
    return None
