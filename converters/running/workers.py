"""Many units at once: in processes of this machine, or on a Ray cluster.

A process converts one unit after the other and gives its memory back to the system at the end of
each, so memory grows with the number of processes and not with that of the ranks. One that dies
takes only the unit that it was converting with it.
"""

from __future__ import annotations

import os
import pickle
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, BinaryIO, cast

import neuron_tb
from neuron_tb.converters.errors import NeuronTbError
from neuron_tb.converters.running.unit import Result, Task, convert_unit

ENGINES = ("processes", "ray")
_UNITS_PER_PROCESS = 32


def run(
    tasks: Sequence[Task], workers: int, engine: str = "processes"
) -> Iterator[tuple[int, Result]]:
    """Convert units; yields each one's place in ``tasks`` and its result as they are done.

    Raises NeuronTbError when the engine is not known or not there.
    """
    if engine not in ENGINES:
        raise NeuronTbError(f"there is no engine {engine!r}; known are {', '.join(ENGINES)}.")
    return _run_on_ray(tasks) if engine == "ray" else _run_in_processes(tasks, workers)


def cores() -> int:
    """How many processors this process may use."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:
        return os.cpu_count() or 1


# -- processes of this machine ------------------------------------------------------------------


def _run_in_processes(tasks: Sequence[Task], workers: int) -> Iterator[tuple[int, Result]]:
    waiting: queue.SimpleQueue[int] = queue.SimpleQueue()
    done: queue.SimpleQueue[tuple[int, Result]] = queue.SimpleQueue()
    for number in range(len(tasks)):
        waiting.put(number)
    slots = [_Slot(tasks, waiting, done) for _ in range(max(1, min(workers, len(tasks))))]
    try:
        for slot in slots:
            slot.start()
        for _ in tasks:
            yield done.get()
    finally:
        for slot in slots:
            slot.stop()


class _Slot(threading.Thread):
    """Hands units to a process, one at a time, and starts another when it has ended."""

    def __init__(
        self,
        tasks: Sequence[Task],
        waiting: queue.SimpleQueue[int],
        done: queue.SimpleQueue[tuple[int, Result]],
    ) -> None:
        super().__init__(daemon=True)
        self._tasks, self._waiting, self._done = tasks, waiting, done
        self._process: subprocess.Popen[bytes] | None = None
        self._served = 0
        self._stopped = False

    def run(self) -> None:
        while not self._stopped:
            try:
                number = self._waiting.get_nowait()
            except queue.Empty:
                break
            self._done.put((number, self._converted(self._tasks[number])))
        self._end()

    def stop(self) -> None:
        """End the process, whatever it is doing."""
        self._stopped = True
        process = self._process
        if process is not None:
            process.kill()
        self.join()

    def _converted(self, task: Task) -> Result:
        if self._served >= _UNITS_PER_PROCESS:
            self._end()
        try:
            process = self._process = self._process or _started()
            self._served += 1
            pickle.dump(task, cast(BinaryIO, process.stdin))
            cast(BinaryIO, process.stdin).flush()
            return cast(Result, pickle.load(cast(BinaryIO, process.stdout)))
        except (OSError, EOFError, pickle.UnpicklingError) as error:
            return Result(error=self._reason(error))

    def _reason(self, error: Exception) -> str:
        process, self._process, self._served = self._process, None, 0
        if process is None:
            return f"no process could be started: {error}."
        code = process.wait()
        if code == -signal.SIGKILL:
            return "its process was killed, probably because memory ran out."
        return f"its process ended unexpectedly (exit code {code})."

    def _end(self) -> None:
        process, self._process, self._served = self._process, None, 0
        if process is not None:
            cast(BinaryIO, process.stdin).close()
            cast(BinaryIO, process.stdout).close()
            process.wait()


def _started() -> subprocess.Popen[bytes]:
    """A process that runs ``serve``. It is no fork, so that callers may have threads."""
    root = str(Path(neuron_tb.__file__).absolute().parent.parent)
    paths = [root, os.environ.get("PYTHONPATH", "")]
    environment = {
        # Bits of NumPy and Arrow that would start a thread per core in every process.
        "OMP_NUM_THREADS": "1",
        **{name: value for name, value in os.environ.items() if name != "NEURON_TB"},
        "PYTHONPATH": os.pathsep.join(path for path in paths if path),
        # Large arrays go back to the system when they are freed.
        "MALLOC_TRIM_THRESHOLD_": "1000000",
        "MALLOC_MMAP_THRESHOLD_": "1000000",
    }
    command = [sys.executable, "-m", "neuron_tb.converters.running.workers"]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment)


def serve() -> None:
    """Convert units that come on standard input and put results on standard output."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent ends this process
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what libraries print goes to standard error
    while True:
        try:
            task = pickle.load(sys.stdin.buffer)
        except EOFError:
            return
        pickle.dump(convert_unit(task), answers)
        answers.flush()


# -- a Ray cluster ------------------------------------------------------------------------------


def _run_on_ray(tasks: Sequence[Task]) -> Iterator[tuple[int, Result]]:
    """The same function on every node of a cluster; sources and OUT are on a shared file system.

    Joins the cluster that ``RAY_ADDRESS`` names or this process already uses, else starts one on
    this machine for the time of the conversion.
    """
    try:
        ray: Any = import_module("ray")
    except ImportError as error:
        raise NeuronTbError(
            "--engine ray needs Ray: pip install 'neuron-tb[ray]'; or leave it out to use "
            "processes of this machine."
        ) from error
    own = not ray.is_initialized()
    if own:
        ray.init(log_to_driver=False, include_dashboard=False)
    try:
        remote = ray.remote(max_retries=0)(convert_unit)
        running = {remote.remote(task): number for number, task in enumerate(tasks)}
        while running:
            (ready,), _ = ray.wait(list(running), num_returns=1)
            number = running.pop(ready)
            try:
                yield number, ray.get(ready)
            except ray.exceptions.RayError as error:
                yield number, Result(error=f"its Ray task failed: {type(error).__name__}.")
    finally:
        if own:
            ray.shutdown()


if __name__ == "__main__":
    serve()
