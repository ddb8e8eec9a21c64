"""TensorBoard on 127.0.0.1, in a process of its own, ready before anyone is sent to it."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from importlib.util import find_spec
from pathlib import Path
from typing import IO
from urllib.parse import quote

from neuron_tb.converters.errors import NeuronTbError
from neuron_tb.viewing.loopback import ADDRESS, free_port, port_is_free, ssh_line, wait_until

USUAL_PORT = 6006
"""TensorBoard's own default, taken when it is free."""

_NEEDED = {"tensorboard": "TensorBoard", "xprof": "its Profile plugin (XProf)"}
_ATTEMPTS = 3
_POLL_SECONDS = 0.2
_TERMINATE_SECONDS = 10.0
_LOG_LINES = 3


class TensorBoardServer:
    """A running TensorBoard. Also a context manager that ends it."""

    def __init__(self, process: subprocess.Popen[bytes], log: IO[bytes], port: int) -> None:
        self._process = process
        self._log = log
        self._closed = False
        self.port = port
        self.url = f"http://{ADDRESS}:{port}/#profile"
        """TensorBoard's Profile tab, which is XProf."""
        self.ssh_line = ssh_line(port)
        """What to type on a laptop when this machine is a remote one."""

    def trace_viewer_url(self, run: str) -> str:
        """XProf's Trace Viewer of ``run``, a run as the Profile tab lists it."""
        return f"http://{ADDRESS}:{self.port}/?run={quote(run, safe='')}&tag=trace_viewer@#profile"

    def serve_until_closed(self) -> None:
        """Return after ``close()`` or Ctrl-C.

        Raises:
            NeuronTbError: TensorBoard ended by itself.
        """
        try:
            wait_until(lambda: self._closed or self._process.poll() is not None)
            if self._ended_by_itself():
                raise NeuronTbError(f"TensorBoard ended. {self._last_words()}".strip())
        finally:
            self.close()

    def close(self) -> None:
        """End TensorBoard and wait for its end; calling it twice is harmless."""
        if self._closed:
            return
        self._closed = True
        if self._process.poll() is None:
            self._process.terminate()
            try:
                self._process.wait(_TERMINATE_SECONDS)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        self._log.close()

    def _ended_by_itself(self) -> bool:
        """Whether it is gone, and not by the Ctrl-C that reached it together with us."""
        code = self._process.poll()
        return not self._closed and code is not None and code > 0

    def _last_words(self) -> str:
        self._log.seek(0)
        lines = self._log.read().decode("utf-8", "replace").strip().splitlines()
        return " ".join(line.strip() for line in lines[-_LOG_LINES:])

    def _wait_until_ready(self, deadline: float) -> bool:
        """False when the process ended before it answered."""
        while self._process.poll() is None:
            if _answers(self.port):
                return True
            if time.monotonic() > deadline:
                raise NeuronTbError(f"TensorBoard did not start in time. {self._last_words()}")
            time.sleep(_POLL_SECONDS)
        return False

    def __enter__(self) -> TensorBoardServer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def serve_logdir(
    out: Path, *, port: int | None = None, start_seconds: float = 120.0
) -> TensorBoardServer:
    """Start TensorBoard on the folder ``out`` and return when it answers.

    Without ``port`` it is 6006 when that is free, any free one otherwise. ``start_seconds`` is
    how long TensorBoard may take to answer.

    Raises:
        NeuronTbError: ``out`` is no folder, TensorBoard or XProf is not installed, ``port`` is
            taken, or TensorBoard did not start.
    """
    if not out.is_dir():
        raise NeuronTbError(f"{out} is not a folder.")
    for module, name in _NEEDED.items():
        if find_spec(module) is None:
            raise NeuronTbError(
                f'TensorBoard needs {name}: pip install "neuron-tb[tensorboard]".'
                if module != "tensorboard"
                else 'TensorBoard is not installed: pip install "neuron-tb[tensorboard]".'
            )
    if port is not None and not port_is_free(port):
        raise NeuronTbError(f"Port {port} of this machine is taken.")
    deadline = time.monotonic() + start_seconds
    words = ""
    for attempt in range(_ATTEMPTS):
        usual = USUAL_PORT if attempt == 0 and port_is_free(USUAL_PORT) else free_port()
        server = _started(out, port or usual)
        try:
            if server._wait_until_ready(deadline):
                return server
            words = server._last_words()
        except BaseException:
            server.close()
            raise
        server.close()
        if port is not None or "port" not in words.lower():
            break
    raise NeuronTbError(f"TensorBoard did not start. {words}".strip())


def _started(out: Path, port: int) -> TensorBoardServer:
    # Files named like a module in the current directory must not stand in for it.
    environment = {**os.environ, "PYTHONSAFEPATH": "1"}
    environment.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    log = tempfile.TemporaryFile()  # noqa: SIM115 - open as long as the server is
    command = [sys.executable, "-m", "tensorboard.main"]
    # The quick loader of TensorBoard is a binary of its own that knows no profile runs.
    command += ["--logdir", str(out.resolve()), "--load_fast=false"]
    command += ["--host", ADDRESS, "--port", str(port)]
    # In our own process group: what ends a terminal ends TensorBoard as well.
    process = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=subprocess.STDOUT,
        env=environment,
    )
    return TensorBoardServer(process, log, port)


def _answers(port: int) -> bool:
    # No proxy: the environment's would be asked for 127.0.0.1 too.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(f"http://{ADDRESS}:{port}/data/plugins_listing", timeout=5) as answer:
            return b'"profile"' in answer.read()
    except (OSError, urllib.error.URLError):
        return False
