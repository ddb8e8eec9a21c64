"""Running ``neuron-explorer`` on a capture, whose raw files nothing else reads."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
import time
from pathlib import Path

from neuron_tb.profiler.messages import say_once

PROFILE = "system_profile.json"
_POLL_SECONDS = 0.2
_STOP_SECONDS = 5.0


def make_profile(session: Path, seconds: float) -> bool:
    """Put ``system_profile.json`` into a session's directory; False when that fails.

    Waits ``seconds`` at most. The program may go on serving pages after it has written: it is
    ended once the file is whole. A profile that stands there already is used as it is.
    """
    if (session / PROFILE).exists():
        return True
    program = shutil.which("neuron-explorer")
    if seconds <= 0 or program is None or not (session / "ntrace.pb").exists():
        return False
    command = [program, "view", "--data-path", str(session), "--output-format", "json"]
    try:
        with tempfile.TemporaryDirectory(prefix=".neuron-tb-", dir=session) as aside:
            made = Path(aside) / PROFILE
            reason = _run(command, made, seconds)
            if reason is None:
                made.replace(session / PROFILE)
    except OSError as error:
        reason = str(error)
    if reason is not None:
        say_once(
            "explorer", f"neuron-explorer made no {PROFILE} of {session}: {reason}", failure=True
        )
    return reason is None


def _run(command: list[str], made: Path, seconds: float) -> str | None:
    """Run until ``made`` is whole; the reason when it does not come to that."""
    end = time.monotonic() + seconds
    with tempfile.TemporaryFile() as errors:
        process = subprocess.Popen(
            command,
            cwd=made.parent,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=errors,
        )
        try:
            size = -1
            while time.monotonic() < end:
                ended = process.poll() is not None
                before, size = size, made.stat().st_size if made.exists() else -1
                if size > 0 and (ended or size == before) and _is_whole(made):
                    return None
                if ended:
                    errors.seek(0)
                    lines = errors.read().decode(errors="replace").strip().splitlines()
                    return lines[-1] if lines else f"exit code {process.returncode}"
                time.sleep(_POLL_SECONDS)
            return f"not within {seconds:.0f} seconds"
        finally:
            _end(process)


def _is_whole(document: Path) -> bool:
    with document.open("rb") as file:
        file.seek(max(0, document.stat().st_size - 64))
        return file.read().rstrip().endswith(b"}")


def _end(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
