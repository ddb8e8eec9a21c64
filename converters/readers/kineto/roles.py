"""What Kineto's rows are: roles by category, and which maker's device the work ran on."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from neuron_tb.converters.model import DEVICE_ROLES, NONE, Int32, Int64, Role, UInt8
from neuron_tb.converters.model.numbers import integer
from neuron_tb.converters.readers.kineto.pairs import AsyncRow
from neuron_tb.converters.readers.kineto.tracks import Key

CATEGORY_ROLES = {
    "cpu_op": Role.OPERATOR,
    "operator": Role.OPERATOR,
    "user_annotation": Role.ANNOTATION,
    "python_function": Role.PYTHON,
    "python": Role.PYTHON,
    "runtime": Role.RUNTIME,
    "cuda_runtime": Role.RUNTIME,
    "cuda_driver": Role.RUNTIME,
    "xpu_runtime": Role.RUNTIME,
    "xpu_driver": Role.RUNTIME,
    "mtia_runtime": Role.RUNTIME,
    "glow_runtime": Role.RUNTIME,
    "privateuse1_runtime": Role.RUNTIME,
    "kernel": Role.KERNEL,
    "concurrent_kernel": Role.KERNEL,
    "mtia_ccp_events": Role.KERNEL,
    "hpu_op": Role.KERNEL,
    "gpu_memcpy": Role.TRANSFER,
    "memcpy": Role.TRANSFER,
    "gpu_memset": Role.TRANSFER,
    "memset": Role.TRANSFER,
    "privateuse1_driver": Role.WINDOW,
    "cuda_sync": Role.DEVICE_DETAIL,
    "cuda_event": Role.DEVICE_DETAIL,
    "gpu_user_annotation": Role.DEVICE_ANNOTATION,
    "trace": Role.SPAN,
}
"""What Kineto's categories mean here, compared in lower case; any other is ``OTHER``."""


_NEURON_NAMES = ("__neuron_profiler__", "nrt_", "nrta_", "nc_exec_running", "kbl_exec")


def roles(strings: Sequence[str], category: Int32, thread: Int32, threads: Iterable[Key]) -> UInt8:
    """The ``Role`` of every row.

    ``category``, ``thread``: positions in ``strings`` and ``threads``, shape (rows,).
    """
    by_category = np.array(
        [CATEGORY_ROLES.get(text.lower(), Role.OTHER) for text in strings], np.uint8
    )
    found = by_category[category] if len(by_category) else np.empty(0, np.uint8)
    on_async_row = [type(tid) is AsyncRow for _, tid in threads]
    if any(on_async_row):
        found[np.array(on_async_row)[thread]] = Role.OTHER
    return found


def names_neuron(metadata: Mapping[str, Any], strings: Iterable[str]) -> bool:
    """Evidence of AWS Neuron in names; a PrivateUse1 category alone is none."""
    backend = str((metadata.get("distributedInfo") or {}).get("backend", ""))
    return "neuron" in backend.lower() or any(s.startswith(_NEURON_NAMES) for s in strings)


def family(metadata: Mapping[str, Any], categories: set[str]) -> str:
    """The maker of the devices, as ``Device.family`` calls it, where they are not Neuron's."""
    text = str(metadata.get("deviceProperties") or metadata.get("computeProperties"))
    if any(c.startswith("mtia") for c in categories):
        return "mtia"
    if any(c.startswith("xpu") for c in categories):
        return "xpu"
    if any(c.startswith("privateuse1") for c in categories):
        return "privateuse1"
    if "AMD" in text or any(k.startswith(("hip_", "roctracer")) for k in metadata):
        return "rocm"
    known = {"cuda_runtime", "cuda_driver", "kernel", "Kernel", "gpu_memcpy"}
    return "cuda" if categories & known else "other"


def device_index(role: UInt8, device: Int64 | Int32, thread: Int32, threads: list[Key]) -> Int64:
    """The device of every device row, NONE for others.

    ``device``: what the arguments say, NONE where they say nothing; then the pid is the device.
    """
    pid = np.array([max(min(integer(key[0]), 2**31 - 1), 0) for key in threads], np.int64)
    of_row = np.where(device != NONE, device, pid[thread] if len(pid) else NONE)
    return np.where(np.isin(role, DEVICE_ROLES), of_row, NONE)
