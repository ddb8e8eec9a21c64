"""Running AWS's ``neuron-explorer`` on a capture whose raw files nothing else reads for certain.

Up to SDK 2.33 it writes JSON, later releases Parquet only. It may go on serving pages after it
has written; it is ended, with all that it started, once its output is whole. Results of
``explored`` are kept in the user's cache, by the capture's files and the program.

Commands: AWS Neuron documentation, "Neuron Explorer".
"""

from __future__ import annotations

import atexit
import functools
import hashlib
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

import msgspec

from neuron_tb.converters.errors import NeuronTbError
from neuron_tb.converters.readers.explorer_commands import PROGRAM

SWITCH = "NEURON_TB_EXPLORER"
"""Environment variable: 0 never runs the program, a number is the limit in seconds."""
JSON_PROFILE = "system_profile.json"
EVENTS_TABLE = "SystemProfileEvents"

_LIMIT_SECONDS = 900.0
_HELP_SECONDS = 10.0
_POLL_SECONDS = 0.2
_STOP_SECONDS = 5.0
_SETTLED_SECONDS = {"json": 3.0, "parquet": 15.0}
"""Output that has not changed for so long is finished, while the program still runs."""
_SETTLED_SERVING_SECONDS = {"json": 1.0, "parquet": 3.0}
"""The same, once the program has told the address of its pages."""
_KEPT_DAYS = 30
_MAKING = ".making-"
_PARQUET_MAGIC = b"PAR1"


def limit_seconds() -> float:
    """How long the program may run, as the environment says; 0 where it may not run at all."""
    text = os.environ.get(SWITCH, "").strip().lower()
    try:
        return max(float(text), 0.0)
    except ValueError:
        return 0.0 if text in ("off", "never", "no", "false") else _LIMIT_SECONDS


def explored(capture: Path, say: Callable[[str], None] | None = None) -> Path | None:
    """A directory with the program's output for a capture directory; it must not be changed.

    None where the program is not on the PATH, or ``SWITCH`` forbids it. Raises
    NeuronTbError, with one sentence, when the program fails.
    """
    program, seconds = shutil.which(PROGRAM), limit_seconds()
    if program is None or seconds <= 0:
        return None
    place = _cache() / _key(capture, Path(program))
    if place.is_dir():
        os.utime(place)
        return place
    if say is not None:
        say(f"running {PROGRAM} on {capture.name}")
    aside = Path(tempfile.mkdtemp(prefix=_MAKING, dir=place.parent))
    try:
        with _alone(place.parent):
            run(capture, aside, seconds)
        try:
            aside.rename(place)
        except OSError:  # another process was first
            if not place.is_dir():
                raise
    except OSError as error:
        raise NeuronTbError(f"{PROGRAM}'s output cannot be kept: {error}.") from error
    finally:
        shutil.rmtree(aside, ignore_errors=True)
    return place


def run(capture: Path, into: Path, seconds: float) -> None:
    """Let the program write a system profile of ``capture`` into the empty directory ``into``.

    Raises NeuronTbError, with one sentence, when there is none after ``seconds``.
    """
    program = shutil.which(PROGRAM)
    if program is None:
        raise NeuronTbError(f"{PROGRAM} is not on the PATH.")
    end = time.monotonic() + seconds
    known = _help(program)
    reasons: list[str] = []
    for output_format in ("json", "parquet"):
        if known and output_format not in known:
            continue
        words = [program, "view", "-d", str(capture.absolute()), "--output-format", output_format]
        if output_format == "parquet":
            words += ["--output-file", str(into)]
        if "--disable-ui" in known:
            words.append("--disable-ui")
        reason = _attempt(words, into, output_format, end)
        if reason is None:
            return
        reasons.append(reason)
        _empty(into)
        if time.monotonic() >= end:
            break
    text = "; ".join(dict.fromkeys(reasons)) or "it offers neither JSON nor Parquet"
    raise NeuronTbError(f"{PROGRAM} made no system profile of {capture}: {text.rstrip('.')}.")


def _attempt(words: list[str], into: Path, output_format: str, end: float) -> str | None:
    """Run until the output is whole; the reason when it does not come to that."""
    with tempfile.TemporaryFile() as log:
        try:
            process = subprocess.Popen(
                words,
                cwd=into,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        except OSError as error:
            return f"it cannot be started ({error.strerror or error})"
        try:
            return _wait(process, log, into, output_format, end)
        finally:
            _end(process)


def _wait(
    process: subprocess.Popen[bytes], log: IO[bytes], into: Path, output_format: str, end: float
) -> str | None:
    state, since = _state(into), time.monotonic()
    began = since
    while time.monotonic() < end:
        code = process.poll()
        if code is not None:
            if code == 0 and _is_whole(into, output_format):
                return None
            return _last_line(log) or f"exit code {code}, and no {output_format} output"
        before, state = state, _state(into)
        if state != before:
            since = time.monotonic()
        serving = b"http" in _tail(log)
        settled = (_SETTLED_SERVING_SECONDS if serving else _SETTLED_SECONDS)[output_format]
        if state and time.monotonic() - since >= settled:
            if _is_whole(into, output_format):
                return None
            since = time.monotonic()
        time.sleep(_POLL_SECONDS)
    return f"it was not finished after {time.monotonic() - began:.0f} seconds"


def _end(process: subprocess.Popen[bytes]) -> None:
    """End the program and whatever it started: they are a process group of their own."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(process.pid, number)
        except (ProcessLookupError, PermissionError):
            break
        limit = time.monotonic() + _STOP_SECONDS
        while _group_runs(process) and time.monotonic() < limit:
            time.sleep(0.02)
    process.wait()


def _group_runs(process: subprocess.Popen[bytes]) -> bool:
    process.poll()  # a child that has ended counts as running until it is asked for
    try:
        os.killpg(process.pid, 0)
    except (ProcessLookupError, PermissionError):
        return False
    return True


def _state(directory: Path) -> dict[str, tuple[int, int]]:
    """Sizes and times of all files below a directory."""
    found = {}
    for path in directory.rglob("*"):
        try:
            stat = path.stat()
        except OSError:  # gone meanwhile
            continue
        if path.is_file():
            found[str(path)] = (stat.st_size, stat.st_mtime_ns)
    return found


def _is_whole(directory: Path, output_format: str) -> bool:
    """Whether the output can be read to its end."""
    if output_format == "json":
        try:
            msgspec.json.decode((directory / JSON_PROFILE).read_bytes(), type=msgspec.Raw)
        except (OSError, msgspec.DecodeError, RecursionError):
            return False
        return True
    tables = list(directory.rglob("*.parquet"))
    has_events = any(t.stem.split("_")[0] == EVENTS_TABLE for t in tables)
    return has_events and all(map(_has_footer, tables))


def _has_footer(table: Path) -> bool:
    with table.open("rb") as file:
        if table.stat().st_size < 12 or file.read(4) != _PARQUET_MAGIC:
            return False
        file.seek(-4, os.SEEK_END)
        return file.read() == _PARQUET_MAGIC


def _tail(log: IO[bytes]) -> bytes:
    size = os.fstat(log.fileno()).st_size
    return os.pread(log.fileno(), 1 << 14, max(0, size - (1 << 14)))


def _last_line(log: IO[bytes]) -> str:
    lines = _tail(log).decode(errors="replace").strip().splitlines()
    return " ".join(lines[-1].split()) if lines else ""


def _empty(directory: Path) -> None:
    for path in directory.iterdir():
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)


@functools.cache
def _help(program: str) -> str:
    """What ``view --help`` prints: it names the formats and options of this release."""
    with tempfile.TemporaryFile() as log:
        try:
            process = subprocess.Popen(
                [program, "view", "--help"],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        except OSError:
            return ""
        try:
            process.wait(_HELP_SECONDS)
        except subprocess.TimeoutExpired:
            pass
        finally:
            _end(process)
        text = _tail(log).decode(errors="replace")
    # Help that names no format says nothing about them.
    return text if "--output-format" in text and ("json" in text or "parquet" in text) else ""


# -- the cache ------------------------------------------------------------------------------


def _cache() -> Path:
    """The directory of results, made if need be; a temporary one where there is no other."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    place = Path(base) / "neuron_tb" / "explorer"
    try:
        place.mkdir(parents=True, exist_ok=True, mode=0o700)
        _forget_old(place)
        if os.access(place, os.W_OK):
            return place
    except OSError:
        pass
    return _temporary_cache()


@functools.cache
def _temporary_cache() -> Path:
    place = tempfile.mkdtemp(prefix="neuron_tb-explorer-")
    atexit.register(shutil.rmtree, place, ignore_errors=True)
    return Path(place)


@contextmanager
def _alone(place: Path) -> Iterator[None]:
    """One run at a time: the program serves on fixed ports, and takes much memory."""
    with (place / ".lock").open("wb") as lock:
        # Windows has no such module, and some file systems have no locks.
        with suppress(ImportError, OSError):
            import fcntl

            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _forget_old(place: Path) -> None:
    now = time.time()
    for entry in (p for p in place.iterdir() if p.is_dir()):
        days = 1 if entry.name.startswith(_MAKING) else _KEPT_DAYS
        try:
            if now - entry.stat().st_mtime > days * 86400:
                shutil.rmtree(entry, ignore_errors=True)
        except OSError:
            continue


def _key(capture: Path, program: Path) -> str:
    """Changes with any file in the capture's directory and with the program."""
    lines = [str(capture.resolve()), str(program.resolve())]
    for path in (program.resolve(), *sorted(capture.iterdir())):
        if path.is_file():
            stat = path.stat()
            lines.append(f"{path.name} {stat.st_size} {stat.st_mtime_ns}")
    return hashlib.sha256("\n".join(lines).encode("utf-8", "surrogateescape")).hexdigest()[:32]
