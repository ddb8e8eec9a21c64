"""Tensors as ``record_shapes`` describes them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Tensor:
    """What ``record_shapes`` keeps of a tensor."""

    shape: tuple[int, ...]
    dtype: str = "c10::BFloat16"

    @property
    def strides(self) -> list[int]:
        """Strides of the contiguous tensor, in elements."""
        strides = [1]
        for size in reversed(self.shape[1:]):
            strides.insert(0, strides[0] * size)
        return strides if self.shape else []

    @property
    def bytes(self) -> int:
        """Size in memory."""
        count = 1
        for size in self.shape:
            count *= size
        return count * {"c10::BFloat16": 2, "float": 4, "double": 8}[self.dtype]


Input = Tensor | tuple[Tensor, ...] | str
"""A tensor, a list of tensors, or the text of any other argument ("" for None)."""


def described(inputs: Sequence[Input]) -> dict[str, Any]:
    """The four arguments that ``record_shapes`` adds to an operator."""
    kinds: list[str] = []
    for value in inputs:
        if isinstance(value, str):
            kinds.append("" if not value else "ScalarList" if value[0] == "[" else "Scalar")
        else:
            kinds.append(value.dtype if isinstance(value, Tensor) else "TensorList")

    def each(of_tensor: str) -> list[Any]:
        return [
            []
            if isinstance(value, str)
            else list(getattr(value, of_tensor))
            if isinstance(value, Tensor)
            else [list(getattr(tensor, of_tensor)) for tensor in value]
            for value in inputs
        ]

    return {
        "Concrete Inputs": [value if isinstance(value, str) else "" for value in inputs],
        "Input type": kinds,
        "Input Strides": each("strides"),
        "Input Dims": each("shape"),
    }
