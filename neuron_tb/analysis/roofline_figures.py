"""The figures of a roofline, each from its formula and the inputs that a device profile gives.

A peak that the profile does not give is the published one of the instance type, and says so.
Percentages that the profile states itself are compared, never used: schema and files do not
agree whether they are percentages or fractions.

Formulas: AWS Neuron documentation, Neuron Explorer's Summary table.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from neuron_tb.converters.errors import NeuronTbError
from neuron_tb.converters.findings import Findings
from neuron_tb.converters.model.hardware import SOURCE, Chip, chip_of, engine_name
from neuron_tb.converters.model.numbers import as_number, scale_between

COMPUTE_BOUND, MEMORY_BOUND = "compute-bound", "memory-bound"

_CLOCK = re.compile(r"(.*_)?(tensor|pe)(_.*)?_(clock|freq)(_.*)?|(tensor|pe)_(clock|freq).*")
_HZ = {"hz": 1.0, "khz": 1e3, "mhz": 1e6, "ghz": 1e9}
_SECONDS = {"s": 1.0, "seconds": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9}
_PLAUSIBLE_GHZ = (0.1, 10.0)
_TOLERANCE = 0.02
_MOST_CORES = 2
"""A logical core joins at most two physical ones."""


@dataclass(frozen=True, slots=True)
class Figure:
    """One number with where it comes from.

    ``value``: None when it is not known, and ``reason`` says why. ``formula``: in the words of
    ``inputs``, whose values are the profile's own columns or other figures. ``source``: whose
    figure it is, for peaks. ``stated``: what the profile itself says of it, as it is written.
    """

    key: str
    title: str
    unit: str
    value: float | None
    formula: str
    inputs: Mapping[str, float]
    source: str | None = None
    reason: str | None = None
    stated: Mapping[str, float] = field(default_factory=dict)

    def as_dict(self) -> dict[str, Any]:
        """The JSON form; field names are stable."""
        return {
            "value": self.value,
            "unit": self.unit,
            "formula": self.formula,
            "inputs": dict(self.inputs),
            "source": self.source,
            "reason": self.reason,
            "stated": dict(self.stated),
        }


@dataclass(frozen=True, slots=True)
class _Formula:
    """How a figure is made ``of`` others, and the columns in which a profile may state it."""

    key: str
    title: str
    unit: str
    of: tuple[str, ...]
    formula: str
    compute: Callable[..., float]
    stated_as: tuple[str, ...] = ()


_MATMUL_FLOPS = _Formula(
    "matmul_flops",
    "FLOPs without transposes",
    "FLOP",
    ("hardware_flops", "transpose_flops"),
    "hardware_flops - transpose_flops",
    lambda hardware, transposes: hardware - transposes,
)
_HBM_BYTES = _Formula(
    "hbm_bytes",
    "HBM bytes",
    "B",
    ("hbm_read_bytes", "hbm_write_bytes"),
    "hbm_read_bytes + hbm_write_bytes",
    lambda read, written: read + written,
)


def _utilisation(key: str, title: str, flops: str, *stated_as: str) -> _Formula:
    return _Formula(
        key,
        title,
        "%",
        (flops, "peak_flops", "total_time"),
        f"{flops} / (peak_flops * total_time)",
        lambda done, peak, time: 100 * done / (peak * time),
        stated_as,
    )


_RATIOS = (
    _Formula(
        "arithmetic_intensity",
        "Arithmetic intensity",
        "FLOP/B",
        ("matmul_flops", "hbm_bytes"),
        "matmul_flops / hbm_bytes",
        lambda flops, moved: flops / moved,
        ("mm_arithmetic_intensity",),
    ),
    _Formula(
        "ridge_point",
        "Ridge point",
        "FLOP/B",
        ("peak_flops", "hbm_bandwidth"),
        "peak_flops / hbm_bandwidth",
        lambda peak, bandwidth: peak / bandwidth,
        ("peak_flops_bandwidth_ratio",),
    ),
    _Formula(
        "achieved_flops",
        "Achieved",
        "FLOP/s",
        ("matmul_flops", "total_time"),
        "matmul_flops / total_time",
        lambda flops, time: flops / time,
    ),
    _Formula(
        "attainable_flops",
        "Attainable at this intensity",
        "FLOP/s",
        ("peak_flops", "arithmetic_intensity", "hbm_bandwidth"),
        "min(peak_flops, arithmetic_intensity * hbm_bandwidth)",
        lambda peak, intensity, bandwidth: min(peak, intensity * bandwidth),
    ),
    _utilisation("hfu", "HFU", "hardware_flops", "hfu_estimated_percent"),
    _utilisation(
        "mfu", "MFU (model)", "model_flops", "mfu_hlo_estimated_percent", "mfu_estimated_percent"
    ),
    _utilisation(
        "mfu_instructions", "MFU (instructions)", "matmul_flops", "mfu_inst_estimated_percent"
    ),
    _Formula(
        "mfu_ceiling",
        "MFU ceiling of the memory",
        "%",
        ("model_flops", "hbm_bytes", "ridge_point"),
        "(model_flops / hbm_bytes) / ridge_point",
        lambda flops, moved, ridge: 100 * flops / moved / ridge,
        ("mfu_max_achievable_estimated_percent",),
    ),
    _Formula(
        "mbu",
        "MBU",
        "%",
        ("hbm_bytes", "total_time", "hbm_bandwidth"),
        "hbm_bytes / (total_time * hbm_bandwidth)",
        lambda moved, time, bandwidth: 100 * moved / (time * bandwidth),
        ("mbu_estimated_percent",),
    ),
)


class FigureMaker:
    """Makes the figures of one profile; each may use those made before it."""

    def __init__(
        self,
        name: str,
        facts: Mapping[str, Any],
        summary: Mapping[str, Any],
        instance_type: str | None,
        physical_cores: int | None,
        findings: Findings,
    ) -> None:
        self._name, self._facts, self._summary = name, facts, summary
        self._metadata: Mapping[str, Any] = (facts["Metadata"] or [{}])[0]
        self._instance_type = instance_type or self._metadata.get("instance_type")
        self._given_cores, self._findings = physical_cores, findings
        self._figures: dict[str, Figure] = {}

    def figures(self) -> dict[str, Figure]:
        """All figures, in the order in which they are printed."""
        self._add_inputs()
        self._add_peaks()
        self._add_ratios()
        return self._figures

    def verdict(self) -> tuple[str | None, str]:
        """Which bound it is (None where that is not known), and why; after ``figures``."""
        intensity, ridge = self._figures["arithmetic_intensity"], self._figures["ridge_point"]
        for figure in (intensity, ridge):
            if figure.value is None:
                return None, f"{figure.title.lower()} is not known: {figure.reason}"
        at, turn = intensity.value or 0.0, ridge.value or 0.0
        bound = MEMORY_BOUND if at < turn else COMPUTE_BOUND
        side = "below" if bound == MEMORY_BOUND else "at or above"
        return bound, f"{at:,.1f} FLOP/B is {side} the ridge point, {turn:,.1f} FLOP/B"

    # -- what the profile counted -----------------------------------------------------------

    def _add_inputs(self) -> None:
        seconds = _SECONDS.get(self._facts["units"].get("Summary.total_time", "s"))
        total = self._column("total_time")
        self._add(
            "total_time",
            "Time",
            "s",
            None if total is None or seconds is None or total <= 0 else total * seconds,
            "total_time",
            {},
            reason=_absent("total_time"),
        )
        self._count("hardware_flops", "FLOPs of the Tensor engine", "FLOP")
        self._count("transpose_flops", "of them transposes", "FLOP")
        self._count("model_flops", "FLOPs of the model", "FLOP")
        if self._figures["model_flops"].value == 0:
            why = "it is 0, as Neuron Explorer writes where there are no HLO statistics"
            self._add("model_flops", "FLOPs of the model", "FLOP", None, "model_flops", {}, why)
        self._formula(_MATMUL_FLOPS)
        for key, title in (("hbm_read_bytes", "HBM read"), ("hbm_write_bytes", "HBM written")):
            self._count(key, title, "B")
        self._formula(_HBM_BYTES)

    def _count(self, key: str, title: str, unit: str) -> None:
        value = self._column(key)
        self._add(
            key, title, unit, value, key, {}, reason=None if value is not None else _absent(key)
        )

    # -- peaks ------------------------------------------------------------------------------

    def _add_peaks(self) -> None:
        bandwidth = as_number(self._metadata.get("hbm_ddr_bandwidth"))
        if bandwidth and bandwidth > 0:
            self._add(
                "hbm_bandwidth",
                "HBM bandwidth",
                "B/s",
                bandwidth,
                "hbm_ddr_bandwidth",
                {},
                source="the profile's own hbm_ddr_bandwidth (one HBM stack)",
            )
        else:
            self._published("hbm_bandwidth", "HBM bandwidth", "B/s", "hbm_ddr_bandwidth")
        if not (self._peak_by_clock() or self._peak_by_ratio()):
            missing = "the Tensor engine's clock, rows and columns"
            self._published("peak_flops", "Peak", "FLOP/s", missing)

    def _peak_by_clock(self) -> bool:
        clock = self._clock()
        rows, columns = (
            as_number(self._metadata.get(f"tensor_engine_num_{side}")) for side in ("rows", "cols")
        )
        if not (clock and rows and columns):
            return False
        one = 2 * rows * columns * clock
        cores, evidence = self._cores(one)
        inputs = {"rows": rows, "columns": columns, "clock": clock}
        source = f"the profile's own clock, {clock / 1e9:g} GHz"
        if cores is None:
            self._add(
                "peak_flops",
                "Peak",
                "FLOP/s",
                None,
                "2 * rows * columns * clock * cores",
                inputs,
                reason=evidence,
                source=source,
            )
            return True
        self._add(
            "peak_flops",
            "Peak",
            "FLOP/s",
            one * cores,
            "2 * rows * columns * clock * cores",
            {**inputs, "cores": float(cores)},
            source=f"{source}; {cores} Tensor engine{'s' if cores > 1 else ''}: {evidence}",
        )
        return True

    def _clock(self) -> float | None:
        """The Tensor engine's clock in Hz; a number without a unit is GHz, if that is plausible."""
        for name in sorted(self._metadata):
            value = as_number(self._metadata[name])
            if not value or not _CLOCK.fullmatch(name):
                continue
            unit = self._facts["units"].get(f"Metadata.{name}")
            if unit in _HZ:
                return value * _HZ[unit]
            low, high = _PLAUSIBLE_GHZ
            if unit is None and low <= value <= high:
                return value * 1e9
        return None

    def _cores(self, one: float) -> tuple[int | None, str]:
        """How many Tensor engines the peak is of, and what says so; or why that is not known.

        The documents do not say whether Neuron Explorer's peak is of one physical core or of all
        that a logical core joins; the profile's own percentages show it.
        """
        if self._given_cores is not None:
            return self._given_cores, "as given"
        joined = as_number(self._metadata.get("num_physical_cores"))
        if joined == 1:
            return 1, "num_physical_cores is 1"
        found: dict[int, list[str]] = {}
        for name, implied in self._implied_peaks():
            for cores in range(1, _MOST_CORES + 1):
                if _same(implied, one * cores) or _same(100 * implied, one * cores):
                    found.setdefault(cores, []).append(name)
        if len(found) == 1:
            ((cores, names),) = found.items()
            return cores, f"its {names[0]} is of that many"
        if found:
            names = sorted(name for some in found.values() for name in some)
            return None, (
                f"the profile's own {' and '.join(names)} are not of the same number of physical "
                "cores; --physical-cores says which"
            )
        how_many = "several" if joined is None else f"{joined:g}"
        return None, (
            "whether the peak is of one physical core or of all that the logical core joins "
            f"({how_many}) is not settled by the profile; --physical-cores says it"
        )

    def _implied_peaks(self) -> list[tuple[str, float]]:
        """Peaks that the profile's own ratios imply (percentages taken for fractions)."""
        found: list[tuple[str, float]] = []
        time = self._value("total_time")
        for name, key in (
            ("hfu_estimated_percent", "hardware_flops"),
            ("mfu_inst_estimated_percent", "matmul_flops"),
            ("mfu_hlo_estimated_percent", "model_flops"),
            ("mfu_estimated_percent", "model_flops"),
        ):
            stated, flops = self._column(name), self._value(key)
            if stated and flops and time:
                found.append((name, flops / time / stated))
        ratio, bandwidth = self._column("peak_flops_bandwidth_ratio"), self._value("hbm_bandwidth")
        if ratio and bandwidth:
            found.append(("peak_flops_bandwidth_ratio", ratio * bandwidth))
        return found

    def _peak_by_ratio(self) -> bool:
        ratio, bandwidth = self._column("peak_flops_bandwidth_ratio"), self._value("hbm_bandwidth")
        if not ratio or not bandwidth:
            return False
        self._add(
            "peak_flops",
            "Peak",
            "FLOP/s",
            ratio * bandwidth,
            "peak_flops_bandwidth_ratio * hbm_bandwidth",
            {"peak_flops_bandwidth_ratio": ratio, "hbm_bandwidth": bandwidth},
            source="the profile's own peak_flops_bandwidth_ratio",
        )
        return True

    def _published(self, key: str, title: str, unit: str, missing: str) -> None:
        """The published peak of the instance type, for the core's share of the chip."""
        chip, share = self._chip()
        if chip is None or share is None:
            where = "the instance type is not known; --instance-type names it"
            if self._instance_type:
                where = f"none is published for a logical core of {self._instance_type}"
            reason = f"the profile does not give {missing}, and {where}"
            self._add(key, title, unit, None, missing, {}, reason)
            return
        flops = key == "peak_flops"
        of_chip = chip.bf16_teraflops * 1e12 if flops else chip.hbm_bytes_per_second
        what = "dense BF16 peak" if flops else "HBM bandwidth"
        inputs = {"chip": of_chip, "cores": float(share), "cores_of_chip": float(chip.cores)}
        self._add(
            key,
            title,
            unit,
            of_chip * share / chip.cores,
            "chip * cores / cores_of_chip",
            inputs,
            source=f"published {what} of {chip.name} ({SOURCE})",
        )

    def _chip(self) -> tuple[Chip | None, int | None]:
        """The chip, and how many of its physical cores the logical one joins (its default)."""
        try:
            chip = chip_of(str(self._instance_type)) if self._instance_type else None
        except NeuronTbError:  # a type that the profile names and nobody knows
            chip = None
        if chip is None:
            return None, None
        joined = self._given_cores or as_number(self._metadata.get("num_physical_cores"))
        return chip, int(joined) if joined else chip.cores_per_logical

    # -- ratios -----------------------------------------------------------------------------

    def _add_ratios(self) -> None:
        for ratio in _RATIOS:
            self._formula(ratio)

    def busy(self) -> dict[str, tuple[float, float]]:
        """Seconds and share of the time of everything that has an ``*_active_time``."""
        total = self._column("total_time")
        found: dict[str, tuple[float, float]] = {}
        for name in self._summary:
            seconds = self._column(name)
            if not name.endswith("_active_time") or seconds is None or not total:
                continue
            what = name.removesuffix("_active_time")
            engine = engine_name(what) if what.endswith("_engine") else what.replace("_", " ")
            found[engine] = seconds, seconds / total
        return found

    # -- small parts ------------------------------------------------------------------------

    def _column(self, name: str) -> float | None:
        return as_number(self._summary.get(name))

    def _value(self, key: str) -> float | None:
        figure = self._figures.get(key)
        return None if figure is None else figure.value

    def _add(
        self,
        key: str,
        title: str,
        unit: str,
        value: float | None,
        formula: str,
        inputs: Mapping[str, float],
        reason: str | None = None,
        source: str | None = None,
        stated: Mapping[str, float] | None = None,
    ) -> None:
        why = reason if value is None else None
        self._figures[key] = Figure(
            key, title, unit, value, formula, inputs, source, why, stated or {}
        )

    def _formula(self, of: _Formula) -> None:
        """A figure of others; not known when one of them is not, or where it would divide by 0."""
        figures = [self._figures[key] for key in of.of]
        stated = {n: v for n in of.stated_as if (v := self._column(n)) is not None}
        missing = next((f for f in figures if f.value is None), None)
        inputs = {f.key: f.value for f in figures if f.value is not None}
        value, reason = None, None
        if missing is not None:
            inputs, reason = {}, missing.reason
        else:
            try:
                value = of.compute(*inputs.values())
            except ZeroDivisionError:
                reason = f"{next(k for k in reversed(inputs) if not inputs[k])} is 0"
        self._add(of.key, of.title, of.unit, value, of.formula, inputs, reason, stated=stated)
        if value is not None:
            self._compare(of.title, of.unit, value, stated)

    def _compare(self, title: str, unit: str, value: float, stated: Mapping[str, float]) -> None:
        for name, own in stated.items():
            if not own:  # what the profile did not estimate
                continue
            agrees = scale_between(own, value) if unit == "%" else _same(own, value)
            if not agrees:
                self._findings.add(
                    "roofline_differs",
                    f"{self._name}: {title} is {value:.4g} {unit} by its formula, and the "
                    f"profile's own {name} is {own:.4g}",
                )


def _absent(column: str) -> str:
    return f"the profile's Summary has no {column}"


def _same(one: float, other: float) -> bool:
    return abs(one - other) <= _TOLERANCE * abs(other)
