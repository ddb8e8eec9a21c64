"""Every output format."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from neuron_tb.converters.errors import NeuronTbError
from neuron_tb.converters.storage.output import safe_name


@dataclass(frozen=True, slots=True)
class Target:
    """An output format: its modules, where a run lands in OUT, and who opens it.

    ``module``: writes a trace. ``joiner``: joins files of ranks. ``pattern``: files of a run that
    a list does not name.
    """

    name: str
    place: str
    files: str
    viewer: str

    @property
    def module(self) -> str:
        """The module that writes a trace."""
        return f"neuron_tb.converters.writers.{self.name}.write"

    @property
    def joiner(self) -> str:
        """The module that joins files of ranks."""
        return f"neuron_tb.converters.joining.{self.name}"

    def path(self, out: Path, run: str) -> Path:
        """The file or directory of a run."""
        return out / self.place.format(run=run)


TARGETS = {
    "xprof": Target(
        "xprof", "plugins/profile/{run}", "*.xplane.pb", "TensorBoard's Profile plugin"
    ),
    "torch-tb": Target(
        "torch_tb", "{run}", "*.pt.trace.json.gz", "TensorBoard's PyTorch Profiler plugin"
    ),
    "kineto": Target("kineto", "kineto/{run}", "*.trace.json.gz", "HTA, TraceLens, Chakra"),
    "perfetto": Target("perfetto", "perfetto/{run}.pftrace", "", "the Perfetto UI"),
}
"""Every output format; one is a file in writers/, one in joining/ and a line here."""

RESERVED_RUNS = ("plugins", "kineto", "perfetto")


def run_name(text: str) -> str:
    """A run's name as one path component that clashes with no folder of our own."""
    name = safe_name(text)
    return f"{name}_run" if name.casefold() in RESERVED_RUNS else name


def target_names(to: str | Sequence[str]) -> list[str]:
    """``to`` as names of :data:`TARGETS` without repetition. Raises NeuronTbError."""
    wanted = [to] if isinstance(to, str) else list(to)
    if "all" in wanted:
        return list(TARGETS)
    for name in wanted:
        if name not in TARGETS:
            raise NeuronTbError(
                f"there is no target {name!r}; known are {', '.join(TARGETS)}, all."
            )
    return list(dict.fromkeys(wanted))
