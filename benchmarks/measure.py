"""Running a program and measuring it: time, processor time, and memory of all its processes."""

from __future__ import annotations

import os
import statistics
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

_PROC = Path("/proc")
_INTERVAL_S = 0.02


@dataclass(frozen=True, slots=True)
class Measured:
    """One run, or the medians of several.

    ``peak_bytes``: the largest sum of anonymous memory (``RssAnon``) over the program and all its
    descendants, looked at 50 times a second; pages of mapped files are not in it.
    """

    wall_s: float
    cpu_s: float
    peak_bytes: int

    @classmethod
    def median(cls, runs: Sequence[Measured]) -> Measured:
        """The median of each number."""
        return cls(
            statistics.median(r.wall_s for r in runs),
            statistics.median(r.cpu_s for r in runs),
            round(statistics.median(r.peak_bytes for r in runs)),
        )


class CommandError(Exception):
    """A measured program failed; the message has the end of what it said."""


def run(command: Sequence[str | Path]) -> Measured:
    """Run a program to its end. Raises CommandError when it fails."""
    with tempfile.TemporaryFile() as said:
        started = time.perf_counter()
        process = subprocess.Popen(list(map(str, command)), stdout=said, stderr=said)
        memory = _Memory(process.pid)
        _, status, usage = os.wait4(process.pid, 0)
        wall = time.perf_counter() - started
        process.returncode = os.waitstatus_to_exitcode(status)
        memory.stop()
        if process.returncode:
            said.seek(0)
            text = said.read()[-2000:].decode(errors="replace")
            raise CommandError(f"{' '.join(map(str, command))}: {text}")
    return Measured(wall, usage.ru_utime + usage.ru_stime, memory.peak)


def repeated(runs: int, *commands: Callable[[], Sequence[str | Path]]) -> list[Measured]:
    """The medians of several programs, run in turns so that a busy moment hits them alike."""
    found: list[list[Measured]] = [[] for _ in commands]
    for _ in range(runs):
        for number, command in enumerate(commands):
            found[number].append(run(command()))
    return list(map(Measured.median, found))


class _Memory:
    """Watches the memory of a process and its descendants in a thread."""

    def __init__(self, pid: int) -> None:
        self.peak = 0
        self._pid = pid
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._ended.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._ended.wait(_INTERVAL_S):
            self.peak = max(self.peak, sum(map(_anonymous, _family(self._pid))))


def _family(pid: int) -> list[int]:
    found = [pid]
    for member in found:  # grows while it is walked
        for tasks in (_PROC / str(member)).glob("task/*/children"):
            try:
                found += map(int, tasks.read_text().split())
            except OSError:
                continue
    return found


def _anonymous(pid: int) -> int:
    try:
        status = (_PROC / str(pid) / "status").read_text()
    except OSError:
        return 0
    line = next((line for line in status.splitlines() if line.startswith("RssAnon:")), "")
    return int(line.split()[1]) * 1024 if line else 0
