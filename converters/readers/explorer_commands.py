"""What to type so that AWS's ``neuron-explorer`` makes files that can be read.

Commands: AWS Neuron documentation, "Neuron Explorer".
"""

from __future__ import annotations

import shlex
from pathlib import Path

PROGRAM = "neuron-explorer"


def system_command(capture: Path, output_format: str = "json") -> str:
    """The command that a user would type to make a system profile of a capture."""
    return f"{PROGRAM} view -d {shlex.quote(str(capture))} --output-format {output_format}"


def device_command(ntff: Path, neff: Path | None) -> str:
    """The command that a user would type to make a device profile of an NTFF file."""
    program = shlex.quote(str(neff)) if neff is not None else "<its .neff>"
    place = f"{ntff.stem}_tables"
    return (
        f"{PROGRAM} view -n {program} -s {shlex.quote(str(ntff))} --output-format parquet "
        f"--output-file {shlex.quote(place)}"
    )
