"""Every output format."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from neuron_tb.converters.errors import NeuronTbError
from neuron_tb.converters.storage.output import safe_name


@dataclass(frozen=True, slots=True)
class Target:
    """An output format: where a run lands in OUT, who opens it, and its modules.

    ``place``: the run's file or folder. ``writer``: the module whose ``write(trace, destination)``
    writes a trace. ``joiner``: the module whose ``join(parts, destination)`` joins files of ranks;
    without one, ranks can only be written together.
    """

    place: str
    viewer: str
    writer: str
    joiner: str = ""

    def path(self, out: Path, run: str) -> Path:
        """The file or directory of a run."""
        return out / self.place.format(run=run)


TARGETS = {
    "xprof": Target(
        "plugins/profile/{run}",
        "TensorBoard's Profile plugin",
        "neuron_tb.converters.writers.xprof.write",
        "neuron_tb.converters.joining.xprof",
    ),
    "torch-tb": Target(
        "{run}",
        "TensorBoard's PyTorch Profiler plugin",
        "neuron_tb.converters.writers.torch_tb.write",
        "neuron_tb.converters.joining.torch_tb",
    ),
    "kineto": Target(
        "kineto/{run}",
        "HTA, TraceLens, Chakra",
        "neuron_tb.converters.writers.kineto.write",
        "neuron_tb.converters.joining.kineto",
    ),
    "perfetto": Target(
        "perfetto/{run}.pftrace",
        "the Perfetto UI",
        "neuron_tb.converters.writers.perfetto.write",
        "neuron_tb.converters.joining.perfetto",
    ),
}
"""Every output format; one is a module in writers/, one in joining/ and an entry here."""

RESERVED_RUNS = ("plugins", "kineto", "perfetto")


def run_name(text: str) -> str:
    """A run's name as one path component that clashes with no folder of our own."""
    name = safe_name(text)
    return f"{name}_run" if name.casefold() in RESERVED_RUNS else name


def target_names(to: str | Sequence[str]) -> list[str]:
    """``to`` as names of ``TARGETS`` without repetition. Raises NeuronTbError."""
    wanted = [to] if isinstance(to, str) else list(to)
    if "all" in wanted:
        return list(TARGETS)
    for name in wanted:
        if name not in TARGETS:
            raise NeuronTbError(
                f"there is no target {name!r}; known are {', '.join(TARGETS)}, all."
            )
    return list(dict.fromkeys(wanted))
