"""Running ``neuron-explorer`` on a window's capture, and leaving what it made with the capture."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

from neuron_tb.converters.captures import explorer
from neuron_tb.converters.errors import NeuronTbError
from neuron_tb.converters.readers.explorer_commands import PROGRAM
from neuron_tb.profiler.messages import say_once


def make_profile(session: Path, seconds: float) -> bool:
    """Put a system profile into a session's directory; False when that fails.

    Waits ``seconds`` at most, and not at all where the environment forbids the program.
    """
    if min(seconds, explorer.limit_seconds()) <= 0 or shutil.which(PROGRAM) is None:
        return False
    if not (session / "ntrace.pb").exists():
        return False
    try:
        with tempfile.TemporaryDirectory(prefix=".neuron-tb-", dir=session) as aside:
            explorer.run(session, Path(aside), seconds)
            for made in sorted(Path(aside).iterdir()):
                made.replace(session / made.name)
    except (NeuronTbError, OSError) as error:
        say_once("explorer", str(error), failure=True)
        return False
    return True
