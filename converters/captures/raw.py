"""System profiles for captures that have only the runtime's own files.

``neuron-explorer`` makes one where it is on the PATH; where it is not, or fails, the files are
decoded here, which is experimental: their format is not published.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from neuron_tb.converters.captures import explorer
from neuron_tb.converters.captures.capture import Capture, Found
from neuron_tb.converters.captures.find import adopt
from neuron_tb.converters.errors import NeuronTbError
from neuron_tb.converters.findings import Findings
from neuron_tb.converters.readers.ntrace.read import EVENTS


def give_profiles(found: Found, say: Callable[[str], None]) -> Findings:
    """Give every capture that has raw files and no system profile a source of one."""
    findings = Findings()
    for capture in found.captures:
        if capture.raw and not capture.system:
            _ask_explorer(capture, say, findings)
            capture.system = capture.system or sorted(capture.raw, key=_not_the_events)[:1]
    return findings


def _ask_explorer(capture: Capture, say: Callable[[str], None], findings: Findings) -> None:
    try:
        directory = explorer.explored(capture.directory, say)
    except NeuronTbError as error:
        findings.add("explorer_failed", str(error).rstrip("."))
        return
    if directory is not None:
        adopt(capture, directory)


def _not_the_events(path: Path) -> bool:
    return path.name != EVENTS
