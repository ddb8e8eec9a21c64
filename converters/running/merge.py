"""Results of ranks that were converted apart, joined to one run."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from importlib import import_module
from pathlib import Path

from neuron_tb.converters.captures.remote import local_source
from neuron_tb.converters.errors import NeuronTbError
from neuron_tb.converters.findings import Findings
from neuron_tb.converters.joining import FOUND_ANEW, Joiner, Part, perfetto
from neuron_tb.converters.running.manifest import Manifest, document_of
from neuron_tb.converters.running.unit import findings_of
from neuron_tb.converters.running.upload import local_destination
from neuron_tb.converters.storage.output import refuse_overwrite, remove_leftovers
from neuron_tb.converters.writers import Destination, Written
from neuron_tb.converters.writers.targets import RESERVED_RUNS, TARGETS, run_name

_PERFETTO = re.compile(r"(?P<run>.+?)(-rank\d+)?\.pftrace")


@dataclass(slots=True)
class Results:
    """A run's files by target, and the sentences why a target has none.

    ``later_ns``: by how much the clock of its host was found to be behind.
    """

    files: dict[str, list[Path]] = field(default_factory=dict)
    skipped: dict[str, str] = field(default_factory=dict)
    findings: Findings = field(default_factory=Findings)
    sources: list[str] = field(default_factory=list)
    later_ns: int = 0

    @classmethod
    def of_written(cls, written: Iterable[Written], later_ns: int = 0) -> Results:
        """The results that a conversion has just written."""
        results = cls(later_ns=later_ns)
        for file in written:
            if file.path is not None:
                results.files.setdefault(file.target, []).append(file.path)
            else:
                results.skipped.setdefault(file.target, file.skipped or "")
        return results


@dataclass(frozen=True, slots=True)
class Merged:
    """A run that was joined: its name, a row per file, findings of all parts."""

    run: str
    written: list[Written]
    findings: Findings


def merge(
    *outs: str | Path, out: str | Path, run: str | None = None, force: bool = False
) -> list[Merged]:
    """Join what ``convert`` or the drop-in profiler wrote for single ranks; one result per run.

    ``outs``: folders that hold such results. Where each holds one run, all are parts of one run;
    else runs of the same name are. ``run``: the name of the only joined run. An existing result
    is replaced only with ``force``. Raises NeuronTbError.
    """
    found = [_runs_of(local_source(source)) for source in outs]
    if not found:
        raise NeuronTbError("no folder was given.")
    groups: dict[str, list[Results]] = {}
    single = all(len(runs) == 1 for runs in found)
    first = next(iter(found[0]))
    for runs in found:
        for name, results in runs.items():
            groups.setdefault(first if single else name, []).append(results)
    if run is not None:
        if len(groups) > 1:
            raise NeuronTbError(
                f"there are {len(groups)} runs ({', '.join(sorted(groups))}); --run can name one."
            )
        groups = {run_name(run): groups.popitem()[1]}
    with local_destination(out, force) as (folder, upload):
        if upload is not None:
            for name, parts in groups.items():
                upload.refuse_overwrite(name, [t for part in parts for t in part.files])
        joined = [_merged(name, parts, folder, force) for name, parts in groups.items()]
        if upload is None:
            return joined
        for merged in joined:
            upload.run(merged.run)
        return [replace(merged, written=upload.moved(merged.written)) for merged in joined]


def _merged(run: str, parts: Sequence[Results], out: Path, force: bool) -> Merged:
    targets = [name for name in TARGETS if any(name in part.files for part in parts)]
    manifest = Manifest(out, run)
    force = force or manifest.interrupted
    places = [TARGETS[target].path(out, run) for target in targets]
    for place in places:
        remove_leftovers(place.parent)
        refuse_overwrite(place, force)
    stood = {place for place in places if place.exists()}
    findings = Findings(f for part in parts for f in part.findings if f.kind not in FOUND_ANEW)
    sources = [source for part in parts for source in part.sources]
    manifest.begin()
    try:
        written = join(parts, Destination(out, run, force=force), targets)
        findings.extend(findings_of(written))
        manifest.complete(sources, written, findings)
    except BaseException:
        if not any(place.exists() and place not in stood for place in places):
            manifest.abandon()
        raise
    return Merged(run, written, findings)


def join(
    parts: Sequence[Results],
    destination: Destination,
    targets: Iterable[str],
    movable: bool = False,
) -> list[Written]:
    """Write one run of several. ``movable``: the parts' files may be moved away.

    Raises NeuronTbError, also for what the system refuses.
    """
    written: list[Written] = []
    for target in targets:
        files = [
            Part(path, movable, part.later_ns)
            for part in parts
            for path in part.files.get(target, ())
        ]
        if files and not TARGETS[target].joiner:
            why = "its files cannot be joined; convert the ranks together"
            written.append(Written(target, None, skipped=why))
        elif files:
            joiner: Joiner = import_module(TARGETS[target].joiner).join
            try:
                written += joiner(files, destination)
            except OSError as error:
                place = TARGETS[target].path(destination.out, destination.run)
                reason = error.strerror or error
                raise NeuronTbError(f"{place} cannot be written: {reason}.") from error
        reasons = dict.fromkeys(p.skipped[target] for p in parts if target in p.skipped)
        written += [Written(target, None, skipped=reason) for reason in reasons]
    return written


# -- finding parts ------------------------------------------------------------------------------


def _runs_of(out: Path) -> dict[str, Results]:
    """The runs in a folder: those that a list names, and the files of ranks that none does."""
    if not out.is_dir():
        raise NeuronTbError(f"{out} is no folder of results.")
    runs: dict[str, Results] = {}
    listed: set[Path] = set()
    for path in sorted(out.glob("*.json")):
        document = document_of(path)
        if document is None:
            continue
        results = runs.setdefault(run_name(document.get("run") or path.stem), Results())
        results.findings.extend(Findings.of_dicts(document.get("findings", [])))
        results.sources += document.get("sources", [])
        for entry in document.get("files", []):
            if entry["target"] not in TARGETS:
                continue
            file = out / entry["path"]
            if not file.is_file():
                raise NeuronTbError(f"{path} lists {entry['path']}, which is not there.")
            size, stated = file.stat().st_size, entry.get("bytes")
            if stated is not None and size != stated:
                raise NeuronTbError(
                    f"{file} has {size:,} bytes, not the {stated:,} that {path.name} states; copy "
                    "that rank's results, or convert it, again."
                )
            results.files.setdefault(entry["target"], []).append(file)
            listed.add(file)
    for run, target, file in _unlisted(out):
        if file in listed or not file.is_file():
            continue
        results = runs.setdefault(run_name(run), Results())
        results.files.setdefault(target, []).append(file)
        if target == "perfetto":
            results.findings.extend(perfetto.findings_in(file))
    if not runs:
        raise NeuronTbError(f"{out} holds no result of neuron-tb convert or of the profiler.")
    return runs


def _unlisted(out: Path) -> Iterator[tuple[str, str, Path]]:
    """Run, target and path of every file that stands where a run's files stand."""
    for path in sorted(out.glob("plugins/profile/*/*.xplane.pb")):
        yield path.parent.name, "xprof", path
    for path in sorted(out.glob("kineto/*/*.trace.json.gz")):
        yield path.parent.name, "kineto", path
    for path in sorted(out.glob("*/*.pt.trace.json.gz")):
        if path.parent.name not in RESERVED_RUNS:
            yield path.parent.name, "torch-tb", path
    for path in sorted(out.glob("perfetto/*.pftrace")):
        match = _PERFETTO.fullmatch(path.name)
        if match:
            yield match["run"], "perfetto", path
