"""Which files belong to which instance, process, rank and session.

AWS's layouts: ``<out>/<instance>_pid_<pid>/<timestamp>/{trace.json, ntrace.pb, …}``, and the
older one with the files directly in ``<instance>_pid_<pid>/``. Explorer's ``system_profile.json``
lies in the capture's directory, in a directory above it, or is named by the user.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from neuron_tb.converters.captures.capture import Capture, Found, is_jax_run
from neuron_tb.converters.captures.gathering import gather
from neuron_tb.converters.captures.heads import head_of
from neuron_tb.converters.errors import NeuronTbError
from neuron_tb.converters.readers import format_anywhere
from neuron_tb.converters.readers.device.names import holds_device_table, is_device_document
from neuron_tb.converters.readers.explorer_commands import device_command

_PROCESS_DIRECTORY = re.compile(r"(?P<host>.+)_pid_(?P<pid>\d+)")
_RANK = re.compile(r"rank[_-]?(\d+)", re.IGNORECASE)
_FRAMEWORK = re.compile(
    r"trace\.json|(pytorch|neuron)_trace\.json|neuron_framework_trace_rank_\d+\.json"
    r"|.*[._-]trace\.json",
    re.IGNORECASE,
)
_SYSTEM = re.compile(r"system[_-]profile\.json|system[_-]trace\.json|integrated_trace\.json", re.I)
_MAPPING = re.compile(r"framework_mapping_.*\.json")
_DEVICE = re.compile(r"device_profile_model_.*\.json|.*_nc_\d+_(session|model)_\w+\.json", re.I)
_EVENTS_TABLE = re.compile(r"SystemProfileEvents(_\d+)?\.parquet")
_ANY_JSON = re.compile(r".*\.json(\.gz)?", re.IGNORECASE)
_GENERIC_STEMS = {"trace", "pytorch_trace", "neuron_trace", "system_profile", "profile"}
_RAW_NAMES = ("ntrace.pb", "trace_info.pb", "cpu_util.pb", "host_mem.pb")
_OPAQUE_SUFFIXES = (".ntff", ".neff", ".pickle", ".pkl")
_REPEATED_BY_JAX = ("perfetto_trace.json.gz", "perfetto_trace.json")
_MOST_FILES = 100_000
_OWN_RESULT = b'"neuron_tb"'  # a key that our own JSON outputs have before their events


def find(sources: Sequence[Path], listing: bool = False) -> Found:
    """The captures in files and directories. Raises NeuronTbError when there is none.

    ``listing``: files that are never opened are enough.
    """
    if not sources:
        raise NeuronTbError("no source was given.")
    found = Found(default_name(sources[0]))
    for source in sources:
        if source.is_dir():
            captures = _in_directory(source, found)
            if not captures and not (listing and found.only_listed):
                raise NeuronTbError(_nothing_in(source, found.only_listed))
            found.captures += captures
        elif source.exists() and not source.is_file():
            raise NeuronTbError(
                f"{source} is a pipe or a device, which cannot be read twice; write it to a file."
            )
        elif source.exists() and source.suffix in _OPAQUE_SUFFIXES:
            capture = _capture_at(source.parent)
            capture.listed = [p for p in sorted(source.parent.iterdir()) if p == source]
            capture.listed += [p for p in sorted(source.parent.glob("*.neff")) if p != source]
            found.only_listed.append(capture)
            if not listing:
                raise NeuronTbError(_opaque(source, capture))
        elif source.exists():
            found.captures.append(_of_file(source, sources))
        else:
            raise NeuronTbError(f"{source} does not exist.")
    _drop_repeated_files(found)
    gather(found, lambda directory: _in_directory(directory, Found(found.name)))
    _keep_newest_sessions(found)
    return found


def default_name(source: Path) -> str:
    """The capture's own name: its directory's, or its file's where that says something."""
    source = source.absolute()
    if not source.is_dir():
        stem = re.sub(r"(\.\d{10,})?(\.pt)?(\.trace)?\.json(\.gz)?$", "", source.name)
        if stem and stem not in _GENERIC_STEMS:
            return stem
        source = source.parent
    if source.name.isdigit() and source.parent.name:
        return source.parent.name
    return source.name.removesuffix("@latest") or source.name


def _in_directory(root: Path, found: Found) -> list[Capture]:
    by_directory: dict[Path, Capture] = {}
    shared: list[Path] = []
    for path in _files_below(root, found.unreadable):
        capture = by_directory.setdefault(path.parent, _capture_at(path.parent))
        kind = _kind(path)
        if path.name in _REPEATED_BY_JAX and is_jax_run(path.parent):
            kind = "listed"
        if kind == "framework":
            capture.framework.append(path)
        elif kind == "system":
            capture.system.append(path)
        elif kind == "table":
            if path.parent not in capture.system:
                capture.system.append(path.parent)
        elif kind == "device":
            profile = path.parent if path.suffix == ".parquet" else path
            if profile not in capture.device:
                capture.device.append(profile)
        elif kind == "raw":
            capture.raw.append(path)
        elif kind == "listed":
            capture.listed.append(path)
        elif kind == "own":
            found.own_results.append(path)
    captures = [c for c in by_directory.values() if c.framework or c.raw or c.system or c.device]
    read = set(map(id, captures))
    found.only_listed += [c for c in by_directory.values() if c.listed and id(c) not in read]
    # A system profile above the process directories holds several processes.
    for capture in list(captures):
        if capture.system and not (capture.framework or capture.raw):
            below = [
                c
                for c in captures
                if capture.directory in c.directory.parents and (c.framework or c.raw)
            ]
            if below:
                captures.remove(capture)
                shared += capture.system
    _add_profiles_above(captures, root, shared)
    for capture in captures:
        capture.named = capture.directory == root
    return sorted(captures, key=lambda c: (c.host, c.pid or 0, c.session, str(c.directory)))


def _add_profiles_above(captures: list[Capture], root: Path, shared: list[Path]) -> None:
    for capture in captures:
        for path in shared:
            if path.parent in capture.directory.parents and path not in capture.system:
                capture.system.append(path)
    if all(c.system for c in captures):
        return
    for above in _directories_above(root):
        for path in sorted(above.iterdir()) if above.is_dir() else ():
            if path.is_file() and _SYSTEM.fullmatch(path.name):
                for capture in captures:
                    if not capture.system:
                        capture.system.append(path)


def _directories_above(directory: Path) -> list[Path]:
    """The process directory and the one above it, when ``directory`` is inside AWS's layout."""
    directory = directory.absolute()
    for depth, place in enumerate((directory, directory.parent)):
        if _PROCESS_DIRECTORY.fullmatch(place.name):
            return [place.parent] if depth == 0 else [place, place.parent]
    return []


def adopt(capture: Capture, directory: Path) -> None:
    """Let a directory of Neuron Explorer's output belong to a capture."""
    for made in _in_directory(directory, Found(directory.name)):
        capture.system += made.system
        capture.device += made.device


def _of_file(path: Path, sources: Sequence[Path]) -> Capture:
    capture = _capture_at(path.parent)
    capture.named = True
    if path.name in _RAW_NAMES:
        capture.raw = [p for p in sorted(path.parent.iterdir()) if p.name in _RAW_NAMES]
        return capture
    if _is_device_profile(path):
        capture.device.append(path)
        return capture
    is_profile = _SYSTEM.fullmatch(path.name) or _EVENTS_TABLE.fullmatch(path.name)
    if is_profile or path.suffix == ".parquet" or _has_rows_of_a_profile(path):
        capture.system.append(path)
        return capture
    capture.framework.append(path)
    in_layout = capture.pid is not None
    if in_layout or path.name == "trace.json":
        places = [path.parent, *(_directories_above(path.parent) if in_layout else ())]
        for place in places:
            if capture.system:
                break
            beside = sorted(p for p in place.iterdir() if p.is_file())
            capture.system += [p for p in beside if _SYSTEM.fullmatch(p.name) and p not in sources]
            if place == path.parent:
                capture.raw += [p for p in beside if p.name in _RAW_NAMES]
                capture.device += [
                    p for p in beside if _DEVICE.fullmatch(p.name) and p not in sources
                ]
    return capture


def _is_device_profile(path: Path) -> bool:
    if path.suffix == ".parquet":
        return holds_device_table(path)
    name = path.name.removesuffix(".gz")
    return bool(_DEVICE.fullmatch(name)) or is_device_document(head_of(path))


def _capture_at(directory: Path) -> Capture:
    absolute = directory.absolute()
    for place, session in ((absolute, ""), (absolute.parent, absolute.name)):
        match = _PROCESS_DIRECTORY.fullmatch(place.name)
        if match:
            # Explorer's output directories (NAME@latest) below a process' directory: no sessions.
            session = "" if session.endswith("@latest") else session
            return Capture(directory, match["host"], int(match["pid"]), session)
    return Capture(directory, session=absolute.name if is_jax_run(directory) else "")


def _kind(path: Path) -> str:
    name = path.name.removesuffix(".gz")
    if path.name in _RAW_NAMES:
        return "raw"
    if path.suffix in _OPAQUE_SUFFIXES or _MAPPING.fullmatch(path.name):
        return "listed"
    if path.suffix == ".parquet":
        if _EVENTS_TABLE.fullmatch(path.name):
            return "table"
        return "device" if holds_device_table(path) else "listed"
    if _SYSTEM.fullmatch(name):
        return "system"
    if _DEVICE.fullmatch(name):
        return "device"
    if _FRAMEWORK.fullmatch(name):
        return "own" if _OWN_RESULT in head_of(path) else "framework"
    if _ANY_JSON.fullmatch(path.name):
        return "system" if _has_rows_of_a_profile(path) else _kind_by_content(path)
    known = format_anywhere(path)
    return "" if known is None else "system" if known.system else "framework"


def _kind_by_content(path: Path) -> str:
    if _OWN_RESULT in head_of(path):
        return "own"
    if is_device_document(head_of(path)):
        return "device"
    return "framework" if b'"traceEvents"' in head_of(path) or b'"ph"' in head_of(path) else ""


def _has_rows_of_a_profile(path: Path) -> bool:
    return re.search(rb'"(trace_events?|event_type)"\s*:', head_of(path)) is not None


def _files_below(root: Path, unreadable: list[str] | None = None) -> Iterable[Path]:
    number = 0
    errors: list[OSError] = []
    for folder, folders, names in os.walk(root, onerror=errors.append):
        folders[:] = sorted(f for f in folders if not f.startswith("."))
        for name in sorted(names):
            path = Path(folder, name)
            if name.startswith(".") or not path.is_file():
                continue
            number += 1
            if number > _MOST_FILES:
                raise NeuronTbError(
                    f"{root} holds over {_MOST_FILES:,} files; name the capture in it."
                )
            yield path
    if unreadable is not None:
        unreadable += [str(error.filename) for error in errors]


def _drop_repeated_files(found: Found) -> None:
    """A file that several sources name, or name by several paths, is read once."""
    seen: set[Path] = set()
    for capture in found.captures:
        fresh = [p for p in capture.framework if p.resolve() not in seen]
        seen |= {p.resolve() for p in fresh}
        capture.framework = fresh
    found.captures = [c for c in found.captures if c.framework or c.system or c.raw or c.device]


def _keep_newest_sessions(found: Found) -> None:
    newest: dict[tuple[object, ...], Capture] = {}
    for capture in found.captures:
        key = _owner(capture)
        whole = capture.framework or capture.system or capture.raw
        if (whole and capture.session) and (
            key not in newest or _session_order(newest[key]) < _session_order(capture)
        ):
            newest[key] = capture
    kept = [
        c
        for c in found.captures
        if not c.session
        or c.named
        or not (c.framework or c.system or c.raw)
        or newest[_owner(c)].session == c.session
    ]
    found.older = [c for c in found.captures if not any(c is k for k in kept)]
    found.captures = kept


def _owner(capture: Capture) -> tuple[object, ...]:
    """Whose sessions a capture is one of: a process', or JAX's in one log directory."""
    if capture.pid is None:
        return (capture.directory.absolute().parent,)
    return capture.host, capture.pid


def _session_order(capture: Capture) -> tuple[bool, int, str]:
    """Newest last, but before those with a framework trace come those without one.

    A profiler that is stopped before an active step leaves such a session behind.
    """
    time = int(capture.session) if capture.session.isdigit() else 0
    return bool(capture.framework), time, capture.session


def _nothing_in(directory: Path, only_listed: Sequence[Capture]) -> str:
    listed = [path for capture in only_listed for path in capture.listed]
    of_ntff = next((c for c in only_listed if c.ntff()), None)
    if of_ntff is not None:
        return f"{directory} has {of_ntff.lacks()[-1]}."
    if listed:
        return f"{directory} holds only {listed[0].name} and the like, which are never opened."
    return (
        f"{directory} holds no capture: a trace.json or system_profile.json, or directories "
        "named <instance>_pid_<pid> that hold them."
    )


def _opaque(path: Path, capture: Capture) -> str:
    if path.suffix == ".ntff":
        command = device_command(path, capture.neff_of(path))
        return f"{path} is a device profile that only Neuron Explorer reads: run `{command}`."
    if path.suffix == ".neff":
        return f"{path} is a compiled program, which holds no times; name the capture."
    return f"{path} is a Python pickle (perhaps a memory snapshot); pickles are never opened."
