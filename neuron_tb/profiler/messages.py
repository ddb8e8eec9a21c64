"""What the drop-in tells the user: one line per subject and process, on standard error."""

from __future__ import annotations

import os
import sys

_said: set[str] = set()


def say_once(subject: str, text: str, *, failure: bool = False, quiet: bool = False) -> None:
    """Print ``text`` unless this process has printed something on ``subject``.

    News come from rank 0 only; failures from every rank, and also when ``quiet``.
    """
    if subject in _said:
        return
    _said.add(subject)
    if failure or not (quiet or os.environ.get("RANK", "0") != "0"):
        say(text)


def say(text: str) -> None:
    """Print one line."""
    sys.stderr.write(f"neuron_tb: {text}\n")
