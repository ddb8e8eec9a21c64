"""Half of a file's reading in a second process, where there is a second processor.

The process is a fork: it has the file's mapping and the reader's state already. It does nothing
but compute, sends its result as one pickle and ends without cleaning up.
"""

from __future__ import annotations

import multiprocessing
import os
import pickle
import signal
import sys
import threading
import warnings
from collections.abc import Callable
from typing import Any, Generic, TypeVar

WORTHWHILE = 48 << 20
"""Bytes of text below which one process is as fast."""

_MOST_THREADS = 2  # the main one, and one that moves a progress bar

T = TypeVar("T")


class HelperError(Exception):
    """The second process gave no result."""


def may_fork(size: int) -> bool:
    """Whether a second process can and should help with ``size`` bytes.

    Not in a process that may hold locks or devices which a fork must not touch (many threads,
    torch), and not in one that is a worker among others.
    """
    return (
        size >= WORTHWHILE
        and sys.platform == "linux"
        and len(os.sched_getaffinity(0)) > 1
        and threading.active_count() <= _MOST_THREADS
        and "torch" not in sys.modules
        and multiprocessing.parent_process() is None
    )


class Helper(Generic[T]):
    """Runs ``work`` in a forked process, from now on."""

    def __init__(self, work: Callable[[], T]) -> None:
        read_end, write_end = os.pipe()
        with warnings.catch_warnings():
            # Python warns of locks of other threads; the work takes none.
            warnings.simplefilter("ignore", DeprecationWarning)
            self._pid = os.fork()
        if not self._pid:
            _work(work, write_end)
        os.close(write_end)
        self._pipe = os.fdopen(read_end, "rb")
        self._ended = False

    def result(self) -> T:
        """What the work gave. Raises HelperError when it failed."""
        data = self._pipe.read()
        if self._end():
            raise HelperError
        found: T = pickle.loads(data)
        return found

    def stop(self) -> None:
        """End the process, whatever it does."""
        if not self._ended:
            os.kill(self._pid, signal.SIGKILL)
            self._end()

    def _end(self) -> int:
        self._ended = True
        self._pipe.close()
        return os.waitpid(self._pid, 0)[1]


def _work(work: Callable[[], Any], pipe: int) -> None:
    status = 1
    try:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # the first process ends this one
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        data = pickle.dumps(work(), protocol=5)
        with os.fdopen(pipe, "wb") as file:
            file.write(data)
        status = 0
    finally:
        # Without an exception's message: the first process does the work itself then.
        os._exit(status)
