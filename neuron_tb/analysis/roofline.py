"""The roofline of device profiles: how much of the hardware a program used, and what bounds it.

Every figure carries its formula and the inputs, or the reason why it is not known; they are
made in ``roofline_figures``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from neuron_tb.analysis.roofline_figures import Figure, FigureMaker
from neuron_tb.converters.errors import NeuronTbError
from neuron_tb.converters.findings import Findings
from neuron_tb.converters.load import device_facts
from neuron_tb.converters.model import Trace
from neuron_tb.converters.model.hardware import chip_of


@dataclass(frozen=True, slots=True)
class Profile:
    """The roofline of one row of a profile's Summary.

    ``figures``: in the order in which they are printed. ``busy``: for every engine its seconds
    and their share of the profile's time. ``verdict``: ``compute-bound``,
    ``memory-bound``, or None, and ``reason`` says why in either case.
    """

    name: str
    source: str
    core: int | None
    figures: Mapping[str, Figure]
    busy: Mapping[str, tuple[float, float]]
    verdict: str | None
    reason: str

    def value(self, key: str) -> float | None:
        """The value of a figure."""
        return self.figures[key].value

    def as_dict(self) -> dict[str, Any]:
        """The JSON form; field names are stable."""
        return {
            "name": self.name,
            "source": self.source,
            "core": self.core,
            "verdict": self.verdict,
            "verdict_reason": self.reason,
            "figures": {key: figure.as_dict() for key, figure in self.figures.items()},
            "busy": {
                name: {"seconds": seconds, "share": share}
                for name, (seconds, share) in self.busy.items()
            },
        }


@dataclass(frozen=True, slots=True)
class Roofline:
    """The rooflines of all profiles of a call."""

    profiles: list[Profile]
    findings: Findings

    def as_dict(self) -> dict[str, Any]:
        """The JSON form that ``neuron-tb roofline --format json`` prints."""
        return {
            "profiles": [profile.as_dict() for profile in self.profiles],
            "findings": self.findings.as_dicts(),
        }


def roofline(
    *sources: str | Path | Trace,
    instance_type: str | None = None,
    physical_cores: int | None = None,
) -> Roofline:
    """The roofline of every device profile in the sources (or in traces that were loaded).

    ``instance_type``: where the profile does not give its peaks, those published for it.
    ``physical_cores``: how many Tensor engines the peak is of, when the profile does not settle
    it. Raises NeuronTbError when there is no device profile.
    """
    if instance_type is not None:
        chip_of(instance_type)
    findings = Findings()
    found = [facts for source in sources for facts in device_facts(source, findings)]
    if not found:
        raise NeuronTbError(
            "no device profile is there, and only that counts FLOPs and bytes: run "
            "`neuron-explorer view --output-format parquet` (or summary-json) on the capture's "
            ".ntff and name what it writes."
        )
    profiles = []
    for facts in found:
        rows = facts["Summary"] or [{}]
        for number, row in enumerate(rows):
            label = row.get("profile") or (number if len(rows) > 1 else None)
            name = facts["name"] if label is None else f"{facts['name']} {label}"
            maker = FigureMaker(name, facts, row, instance_type, physical_cores, findings)
            figures = maker.figures()
            core, source = facts["core"], facts["source"]
            profiles.append(Profile(name, source, core, figures, maker.busy(), *maker.verdict()))
    return Roofline(profiles, findings)
