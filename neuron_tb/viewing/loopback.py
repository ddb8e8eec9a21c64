"""What both servers share: ports of 127.0.0.1, waiting, the ssh line and the browser."""

from __future__ import annotations

import getpass
import os
import signal
import socket
import sys
import threading
import webbrowser
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

ADDRESS = "127.0.0.1"
"""The only address anything here listens on."""

_POLL_SECONDS = 0.2


def port_is_free(port: int) -> bool:
    """Whether a server could listen on ``port`` of 127.0.0.1 now."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        if os.name != "nt":
            # As the servers themselves do: a port whose last connection just ended is free.
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((ADDRESS, port))
        except OSError:
            return False
    return True


def free_port() -> int:
    """A port of 127.0.0.1 that nothing listens on now; someone else may take it meanwhile."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.bind((ADDRESS, 0))
        port: int = probe.getsockname()[1]
    return port


def ssh_line(port: int) -> str:
    """The command that, typed on a laptop, makes ``port`` of this machine reachable there."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):
        user = "USER"
    return f"ssh -N -L {port}:{ADDRESS}:{port} {user}@{socket.gethostname()}"


def has_display() -> bool:
    """Whether a browser opened here would be seen by the person who typed the command."""
    if os.environ.get("SSH_CONNECTION") or os.environ.get("CI"):
        return False
    if sys.platform in ("win32", "darwin"):
        return True
    return bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))


def open_browser(url: str, *, wanted: bool = True) -> bool:
    """Open ``url`` in the default browser. False when unwanted, without a display, or failed."""
    if not wanted or not has_display():
        return False
    try:
        return webbrowser.open(url)
    except (webbrowser.Error, OSError):
        return False


def wait_until(finished: Callable[[], bool]) -> None:
    """Return when ``finished()`` is true, or after Ctrl-C, SIGTERM or the terminal's end.

    An end by signal is an orderly end: the caller goes on and closes what it opened.
    """
    stop = threading.Event()
    with _signals_set(stop):
        while not stop.is_set() and not finished():
            stop.wait(_POLL_SECONDS)


@contextmanager
def _signals_set(stop: threading.Event) -> Iterator[None]:
    """In the main thread, the signals that mean "end" set ``stop`` while the block runs."""
    names = ("SIGINT", "SIGTERM", "SIGHUP", "SIGBREAK")
    signals = [getattr(signal, name) for name in names if hasattr(signal, name)]
    if threading.current_thread() is not threading.main_thread():
        signals = []

    def set_stop(_number: int, _frame: FrameType | None) -> None:
        stop.set()

    before = {number: signal.signal(number, set_stop) for number in signals}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
