"""System profiles for captures that have only the runtime's own files.

``neuron-explorer`` makes one where it is on the PATH.
"""

from __future__ import annotations

from collections.abc import Callable

from neuron_tb.converters import explorer
from neuron_tb.converters.capture import Capture, Found, adopt
from neuron_tb.converters.errors import NeuronTbError
from neuron_tb.converters.findings import Findings


def give_profiles(found: Found, say: Callable[[str], None]) -> Findings:
    """Give every capture that has raw files and no system profile a system profile, if possible."""
    findings = Findings()
    for capture in found.captures:
        if capture.raw and not capture.system:
            _ask_explorer(capture, say, findings)
    return findings


def _ask_explorer(capture: Capture, say: Callable[[str], None], findings: Findings) -> None:
    try:
        directory = explorer.explored(capture.directory, say)
    except NeuronTbError as error:
        findings.add("explorer_failed", str(error).rstrip("."))
        return
    if directory is not None:
        adopt(capture, directory)
