"""What names, categories and arguments mean to the PyTorch Profiler plugin (0.4.3)."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from neuron_tb.converters.model import NONE, Bools, Int32, Trace
from neuron_tb.converters.model.ragged import chunks
from neuron_tb.converters.writers.cuda.events import Events
from neuron_tb.converters.writers.cuda.words import collective

KNOWN_CATEGORIES = frozenset(
    (
        *("trace", "cpu_op", "operator", "runtime", "kernel", "memcpy", "gpu_memcpy", "memset"),
        *("gpu_memset", "python", "memory", "python_function", "user_annotation"),
        *("gpu_user_annotation", "forward_backward"),
    )
)
COLLECTIVES = ("broadcast", "reduce", "all_reduce", "all_gather", "reduce_scatter")
_COLLECTIVE_NAMES = frozenset(f"{lib}:{c}" for lib in ("nccl", "gloo") for c in COLLECTIVES)
STEP = "ProfilerStep#"
_LOADER = re.compile(r"enumerate\(DataLoader\)#.*\.__next__$|enumerate\(DataPipe\)#", re.S)
_BACKWARD = "autograd::engine::evaluate_function:"
_ACCUMULATE = "autograd::engine::evaluate_function: torch::autograd::AccumulateGrad"
TENSOR_CORE = re.compile(
    "h884|s884|h1688|s1688|hmma|i8816|16816|dgrad_1x1_stride_2x2|first_layer_wgrad_kernel|conv1x1"
    "|conv2d_c1_k1|direct_group|xmma_implicit_gemm|xmma_sparse_conv"
    "|xmma_warp_specialized_implicit_gemm|xmma_gemm|xmma_sparse_gemm|c1688"
)
_NOT_LISTED = ("DataParallel.forward", "DistributedDataParallel.forward")
_PROFILER_SPAN = "PyTorch Profiler (0)"
_MODULE = '"Python module id"'
_MODULE_ID = re.compile(r'"Python module id"\s*:\s*(?!null|\s)')
_TYPES = {
    "long int": "long int",
    "long": "long int",
    "int64": "long int",
    "float": "float",
    "float32": "float",
    "int": "int",
    "int32": "int",
    "c10::half": "c10::Half",
    "half": "c10::Half",
    "float16": "c10::Half",
    "c10::bfloat16": "c10::BFloat16",
    "bfloat16": "c10::BFloat16",
    "unsigned char": "unsigned char",
    "byte": "unsigned char",
    "uint8": "unsigned char",
}
"""Spellings of tensor types, and the only ones from which the plugin computes bytes."""


class Names:
    """What the names and categories of a trace mean to the plugin, one entry per string."""

    def __init__(self, strings: Sequence[str]) -> None:
        self._strings = strings

        def which(test: Callable[[str], bool]) -> Bools:
            return np.fromiter(map(test, strings), np.bool_, len(strings))

        self.step = which(lambda s: s.startswith(STEP))
        self.loader = which(lambda s: _LOADER.match(s) is not None)
        self.optimizer = which(lambda s: s.startswith("Optimizer."))
        self.collective = which(_COLLECTIVE_NAMES.__contains__)
        self.any_collective = which(lambda s: collective(s) is not None)
        self.not_listed = (
            which(lambda s: s in _NOT_LISTED) | self.step | self.optimizer | self.loader
        )
        self.backward = which(lambda s: s.startswith(_BACKWARD))
        self.forward_backward = which(lambda s: s in ("fwdbwd", "forward_backward"))
        self.accumulate = strings.index(_ACCUMULATE) if _ACCUMULATE in strings else NONE
        self.profiler_span = strings.index(_PROFILER_SPAN) if _PROFILER_SPAN in strings else NONE

    def unknown_category(self, events: Events) -> Int32:
        """For every string a category that the plugin does not know."""
        words = events.words
        numbers = [
            words.intern(f"source {text}")
            if text.lower() in KNOWN_CATEGORIES
            else words.intern(text or "other")
            for text in self._strings
        ]
        return np.array(numbers, np.int32)

    def libraries(self, names: Int32) -> set[str]:
        """The communication libraries of these names."""
        return {self._strings[n].split(":")[0] for n in np.unique(names).tolist()}


SIZE_KEYS = ("Input Dims", "Input dims", "Input type")


def has_consistent_sizes(arguments: dict[str, Any]) -> bool:
    """Whether the plugin can multiply dimensions: flat lists of integers, a type for each."""
    values = [msgspec.json.decode(arguments[key]) for key in SIZE_KEYS if key in arguments]
    if not values:
        return True
    return (
        len(values) == 2
        and _flat(values[0])
        and isinstance(values[1], list)
        and (len(values[0]) <= len(values[1]))
    )


def _flat(dims: object) -> bool:
    return isinstance(dims, list) and all(
        isinstance(shape, list) and all(isinstance(n, int) for n in shape) for shape in dims
    )


def tensor_sizes(arguments: dict[str, Any]) -> dict[str, Any]:
    """``Input Dims`` and ``Input type`` of a collective's tensors, {} where they are unknown."""
    values = {key: msgspec.json.decode(raw) for key, raw in arguments.items() if key in _WANTED}
    dims, types = values.get("Input Dims", values.get("Input dims")), values.get("Input type")
    if _flat(dims) and isinstance(types, list) and len(types) == len(dims or ()):
        pairs = [
            (shape, _TYPES[str(kind).lower()])
            for shape, kind in zip(dims or (), types, strict=True)
            if shape and str(kind).lower() in _TYPES
        ]
        if pairs:
            return {"Input Dims": [p[0] for p in pairs], "Input type": [p[1] for p in pairs]}
    count, kind = values.get("In msg nelems"), str(values.get("dtype", "")).lower()
    if isinstance(count, int) and kind in _TYPES:
        return {"Input Dims": [[count]], "Input type": [_TYPES[kind]]}
    return {}


_WANTED = (*SIZE_KEYS, "In msg nelems", "dtype")


def are_modules(trace: Trace, rows: NDArray[np.intp]) -> Bools:
    """Which of these slices, frames of Python, are calls of a ``torch.nn.Module``."""
    found = np.zeros(len(rows), np.bool_)
    slices = trace.slices
    for part in chunks(len(rows)):
        mine = rows[part]
        texts = trace.arguments.rows(slices.args_start[mine], slices.args_length[mine])
        for place in np.flatnonzero(texts.contain(_MODULE)).tolist():
            text = texts.array[place].as_py()
            found[part.start + place] = _MODULE_ID.search(text.decode("latin-1")) is not None
    return found
