"""One capture to any number of output formats."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

from neuron_tb.converters.errors import NeuronTbError
from neuron_tb.converters.findings import Finding, Findings
from neuron_tb.converters.load import Progress, load
from neuron_tb.converters.manifest import Manifest
from neuron_tb.converters.output import refuse_overwrite, remove_leftovers, safe_name
from neuron_tb.converters.trace import Trace
from neuron_tb.converters.writers import Destination, Writer, Written


@dataclass(frozen=True, slots=True)
class Target:
    """An output format: its writer's module, where a run lands in OUT, and who opens it."""

    module: str
    place: str
    viewer: str

    def path(self, out: Path, run: str) -> Path:
        """The file or directory of a run."""
        return out / self.place.format(run=run)


_WRITERS = "neuron_tb.converters.writers."
TARGETS = {
    "xprof": Target(_WRITERS + "xprof", "plugins/profile/{run}", "TensorBoard's Profile plugin"),
    "torch-tb": Target(_WRITERS + "torch_tb", "{run}", "TensorBoard's PyTorch Profiler plugin"),
    "kineto": Target(_WRITERS + "kineto", "kineto/{run}", "HTA, TraceLens, Chakra"),
    "perfetto": Target(_WRITERS + "perfetto", "perfetto/{run}.pftrace", "the Perfetto UI"),
}
"""Every output format; an output format is one file in writers/ and one line here."""

_RESERVED_RUNS = ("plugins", "kineto", "perfetto")


@dataclass(frozen=True, slots=True)
class Conversion:
    """What a conversion did: the trace, the run's name, a row per file, and all findings."""

    trace: Trace
    run: str
    written: list[Written]
    findings: Findings


def convert(
    *sources: str | Path,
    out: str | Path,
    to: str | Sequence[str] = "all",
    run: str | None = None,
    instance_type: str | None = None,
    steps_from: str | None = None,
    instructions: bool = False,
    force: bool = False,
    progress: Progress | None = None,
) -> Conversion:
    """Read captures (as :func:`neuron_tb.load`) and write them for viewers below ``out``.

    ``to``: ``all`` or names from :data:`TARGETS`. ``run``: the run's name, by default the
    capture's own. ``instance_type``: such as ``trn2.48xlarge``; without it no peak figures are
    written. ``instructions``: single instructions of device profiles
    too. An existing result is replaced only with ``force``. Raises NeuronTbError.
    """
    say = progress or (lambda text: None)
    names = _target_names(to)
    out = Path(out)
    trace = load(*sources, steps_from=steps_from, instructions=instructions, progress=say)
    name = run_name(run if run is not None else trace.name)
    places = {target: TARGETS[target].path(out, name) for target in names}
    manifest = Manifest(out, name)
    force = force or manifest.interrupted
    for place in places.values():
        remove_leftovers(place.parent)
        refuse_overwrite(place, force)
    manifest.begin()
    destination = Destination(out, name, instance_type, force)
    written: list[Written] = []
    findings = Findings(trace.findings)
    for target in names:
        say(f"writing {target}")
        write: Writer = import_module(TARGETS[target].module).write
        try:
            written += write(trace, destination)
        except BaseException as error:
            if not written and not places[target].exists():
                manifest.abandon()
            if not isinstance(error, OSError):
                raise
            reason = error.strerror or error
            raise NeuronTbError(f"{places[target]} cannot be written: {reason}.") from error
    findings.extend(_of_all_targets(written))
    manifest.complete(trace, written, findings)
    return Conversion(trace, name, written, findings)


def _of_all_targets(written: Sequence[Written]) -> list[Finding]:
    """The writers' findings; what several formats had to do alike is told once."""
    by_target: dict[str, Findings] = {}
    for file in written:
        by_target.setdefault(file.target, Findings()).extend(file.findings)
    told: dict[tuple[str, str], Finding] = {}
    for finding in (f for findings in by_target.values() for f in findings):
        old = told.get((finding.kind, finding.message))
        if old is None or old.count < finding.count:
            told[finding.kind, finding.message] = finding
    return list(told.values())


def run_name(text: str) -> str:
    """A run's name as one path component that clashes with no folder of our own."""
    name = safe_name(text)
    return f"{name}_run" if name.casefold() in _RESERVED_RUNS else name


def _target_names(to: str | Sequence[str]) -> list[str]:
    wanted = [to] if isinstance(to, str) else list(to)
    if "all" in wanted:
        return list(TARGETS)
    for name in wanted:
        if name not in TARGETS:
            raise NeuronTbError(
                f"there is no target {name!r}; known are {', '.join(TARGETS)}, all."
            )
    return list(dict.fromkeys(wanted))
