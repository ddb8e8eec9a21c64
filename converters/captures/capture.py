"""What a search finds: the files of one process in one session, and all of a call's sources."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path

from neuron_tb.converters.captures.window_manifests import WindowManifest
from neuron_tb.converters.findings import Findings
from neuron_tb.converters.readers.context import Context
from neuron_tb.converters.readers.explorer_commands import device_command, system_command

_RANK = re.compile(r"rank[_-]?(\d+)", re.IGNORECASE)
_MAPPING = re.compile(r"framework_mapping_.*\.json")


@dataclass(slots=True)
class Capture:
    """The files of one process in one profiling session.

    ``host``, ``pid``: from the directory's name, "" and None when it has none. ``session``: the
    timestamp directory's name. ``framework``: the framework trace. ``system``: system profiles
    that lie with it (they may hold other processes too). ``device``: device profiles, as
    directories of tables or as files. ``raw``: the runtime's own files.
    ``listed``: files that are named but never opened. ``named``: the user, or the manifest of a
    trace, named this very directory or file. ``manifests``: of framework traces that have one.
    """

    directory: Path
    host: str = ""
    pid: int | None = None
    session: str = ""
    framework: list[Path] = field(default_factory=list)
    system: list[Path] = field(default_factory=list)
    device: list[Path] = field(default_factory=list)
    raw: list[Path] = field(default_factory=list)
    listed: list[Path] = field(default_factory=list)
    named: bool = False
    manifests: dict[Path, WindowManifest] = field(default_factory=dict)

    def context(self, path: Path) -> Context:
        """What the place of one of its files says about that file."""
        in_name = _RANK.search(path.name)
        rank = int(in_name[1]) if in_name else None
        if path in self.manifests and self.manifests[path].rank is not None:
            rank = self.manifests[path].rank
        host = self.host
        if not host and is_jax_run(path.parent):
            host = path.name.removesuffix(".gz").removesuffix(".trace.json")
        return Context(host, self.pid, rank, neuron=self.pid is not None)

    def lacks(self) -> list[str]:
        """Sentences on what is missing here and how to get it."""
        if self.device and not (self.framework or self.system or self.raw):
            return []  # a device profile is whole on its own
        sentences = []
        if not self.framework:
            sentences.append(
                "no framework trace (trace.json): operators are unknown. Export it with "
                "NeuronProfiler's export_trace as on_trace_ready"
            )
        if not self.system and self.raw:
            sentences.append(
                "the runtime's raw files, but no system profile: run "
                f"`{system_command(self.directory)}` and put system_profile.json beside "
                "trace.json"
            )
        elif not self.system and self.pid is not None:
            sentences.append("no system profile (system_profile.json): no measured device time")
        if self.ntff() and not self.device:
            sentences.append(self._no_device_profile())
        return sentences

    def not_opened(self) -> list[Path]:
        """The files that were not read here, as far as that is known."""
        decoded = any(path in self.system for path in self.raw)
        mappings = self.mappings()
        return [*([] if decoded else self.raw), *(p for p in self.listed if p not in mappings)]

    def mappings(self) -> list[Path]:
        """Files that say which operators an execution ran (``framework_mapping``)."""
        return [p for p in self.listed if _MAPPING.fullmatch(p.name)]

    def ntff(self) -> list[Path]:
        """Device profiles in the runtime's own format, which only Neuron Explorer reads."""
        return [path for path in self.listed if path.suffix == ".ntff"]

    def _no_device_profile(self) -> str:
        ntff = self.ntff()
        what = f"{ntff[0].name}" + (f" and {len(ntff) - 1} more" if len(ntff) > 1 else "")
        if self.raw:
            command = system_command(self.directory, "parquet")
        else:
            command = device_command(ntff[0], self.neff_of(ntff[0]))
        return f"no device profile of {what}, which only Neuron Explorer reads: run `{command}`"

    def neff_of(self, ntff: Path) -> Path | None:
        """The NEFF with the NTFF's number in its name, or the only one."""
        neffs = [path for path in self.listed if path.suffix == ".neff"]
        numbers = set(re.findall(r"\d{6,}", ntff.name))
        same = [path for path in neffs if numbers & set(re.findall(r"\d{6,}", path.name))]
        chosen = same or (neffs if len(neffs) == 1 else [])
        return chosen[0] if chosen else None


@dataclass(slots=True)
class Found:
    """What a call's sources hold: captures, and system profiles that the user named.

    ``only_listed``: directories whose files are all of kinds that are never opened.
    ``findings``: how files that lie apart were put together.
    """

    name: str
    captures: list[Capture] = field(default_factory=list)
    only_listed: list[Capture] = field(default_factory=list)
    findings: Findings = field(default_factory=Findings)
    older: list[Capture] = field(default_factory=list)
    own_results: list[Path] = field(default_factory=list)
    unreadable: list[str] = field(default_factory=list)

    def files(self) -> list[Path]:
        """Every file that will be read."""
        return [p for c in self.captures for p in (*c.framework, *c.system, *c.device)]


def is_jax_run(directory: Path) -> bool:
    """Whether it is ``plugins/profile/<run>``: JAX writes ``<host>.trace.json.gz`` there."""
    above = directory.absolute().parent
    return (above.parent.name, above.name) == ("plugins", "profile")
