"""From an EC2 instance type to a chip and its published peaks; what a core's engines are called.

The figures are AWS's own (Neuron architecture pages, August 2026), dense, per chip. Nothing here
is measured, and nothing is used unless the instance type is known.
"""

from __future__ import annotations

from dataclasses import dataclass

from neuron_tb.converters.errors import NeuronTbError

SOURCE = "AWS Neuron documentation, architecture pages, August 2026"
"""Where every figure of this module comes from; to be quoted beside each that reaches a user."""

ENGINE_ORDER = ("TensorE", "VectorE", "ScalarE", "GpSimdE", "SyncE")
_ENGINES = {
    **dict.fromkeys(("tensor", "tensore", "pe"), "TensorE"),
    **dict.fromkeys(("vector", "vectore", "dve"), "VectorE"),
    **dict.fromkeys(("scalar", "scalare", "act", "activation"), "ScalarE"),
    **dict.fromkeys(("gpsimd", "gpsimde", "pool"), "GpSimdE"),
    **dict.fromkeys(("sync", "synce", "sp"), "SyncE"),
}
"""Engines by the names that Explorer and AWS's documents give them, in lower case."""

_GIB = 1 << 30


@dataclass(frozen=True, slots=True)
class Chip:
    """One kind of accelerator chip.

    ``cores``: physical NeuronCores per chip. ``bf16_teraflops``: dense BF16 peak of the whole
    chip. ``hbm_bytes``, ``hbm_bytes_per_second``: of the whole chip. ``cores_per_logical``: how
    many physical cores one logical NeuronCore joins by default (LNC), None where that default
    is not published.
    """

    name: str
    cores: int
    bf16_teraflops: float
    hbm_bytes: int
    hbm_bytes_per_second: float
    cores_per_logical: int | None


@dataclass(frozen=True, slots=True)
class Peaks:
    """Published peaks of one logical NeuronCore: its share of the chip.

    ``bf16_teraflops``: 10^12 operations per second, dense. ``hbm_gigabytes_per_second``: 10^9
    bytes per second. ``hbm_bytes``: capacity. ``source``: whose figures these are.
    """

    bf16_teraflops: float
    hbm_gigabytes_per_second: float
    hbm_bytes: int
    source: str = SOURCE


_TRAINIUM1 = Chip("AWS Trainium", 2, 190.0, 32 * _GIB, 820.0 * _GIB, 1)
_INFERENTIA2 = Chip("AWS Inferentia2", 2, 190.0, 32 * _GIB, 820.0 * _GIB, 1)
_TRAINIUM2 = Chip("AWS Trainium2", 8, 667.0, 96 * _GIB, 2.9e12, 2)
_TRAINIUM3 = Chip("AWS Trainium3", 8, 671.0, 144 * _GIB, 4.9e12, None)

_CHIPS = {
    "trn1.2xlarge": _TRAINIUM1,
    "trn1.32xlarge": _TRAINIUM1,
    "trn1n.32xlarge": _TRAINIUM1,
    "inf2.xlarge": _INFERENTIA2,
    "inf2.8xlarge": _INFERENTIA2,
    "inf2.24xlarge": _INFERENTIA2,
    "inf2.48xlarge": _INFERENTIA2,
    "trn2.48xlarge": _TRAINIUM2,
    "trn2u.48xlarge": _TRAINIUM2,
    "Trn2 UltraServer": _TRAINIUM2,
    "Trn3 Gen1 UltraServer": _TRAINIUM3,
    "Trn3 Gen2 UltraServer": _TRAINIUM3,
}

INSTANCE_TYPES = tuple(_CHIPS)
"""Every instance type whose chip is known here."""

_BY_LOWER_CASE = {name.lower(): chip for name, chip in _CHIPS.items()}


def chip_of(instance_type: str) -> Chip:
    """The chip of an instance type (letter case is ignored).

    Raises NeuronTbError for an unknown type, naming the known ones.
    """
    chip = _BY_LOWER_CASE.get(instance_type.strip().lower())
    if chip is None:
        raise NeuronTbError(
            f"The instance type {instance_type!r} is not known; known are "
            f"{', '.join(INSTANCE_TYPES)}."
        )
    return chip


def peaks_per_logical_core(chip: Chip, physical_cores: int | None = None) -> Peaks | None:
    """The share of one logical core that joins ``physical_cores`` physical ones.

    Without a number, the chip's default is taken; None when neither is known.
    """
    joined = physical_cores or chip.cores_per_logical
    if joined is None:
        return None
    share = joined / chip.cores
    return Peaks(
        chip.bf16_teraflops * share,
        chip.hbm_bytes_per_second * share / 1e9,
        int(chip.hbm_bytes * share),
    )


def engine_name(value: object) -> str:
    """What an engine is called here, whatever its letter case; unknown names stay as they are."""
    text = str(value).strip()
    return _ENGINES.get(text.lower().removesuffix("_engine").removesuffix(" engine"), text)
