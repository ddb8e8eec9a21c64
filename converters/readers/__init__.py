"""One file per input format; this table is the only place that lists them.

A reader module has ``sniff(document) -> bool``, which decides by the document's structure, and
``read(document, context) -> Trace``. Known names are tried first, structure decides.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

from neuron_tb.converters.errors import NeuronTbError
from neuron_tb.converters.readers import kineto_json, nrt_events, system_profile
from neuron_tb.converters.readers.document import Context, Document, open_document
from neuron_tb.converters.trace import Trace


@dataclass(frozen=True, slots=True)
class Format:
    """An input format: its stable name, what to call it in a sentence, and its reader."""

    name: str
    title: str
    reader: ModuleType


KINETO = Format("kineto", "framework trace (Chrome JSON)", kineto_json)
SYSTEM_PROFILE = Format("system_profile", "Neuron system profile (JSON)", system_profile)
NRT_EVENTS = Format("nrt_events", "dump of the Neuron runtime's events (JSON)", nrt_events)
FORMATS = (SYSTEM_PROFILE, NRT_EVENTS, KINETO)
SYSTEM_FORMATS = (SYSTEM_PROFILE, NRT_EVENTS)
"""Formats whose processes have no framework operators of their own."""


def identify(document: Document) -> Format | None:
    """The format of an opened document, or None."""
    return next((f for f in FORMATS if f.reader.sniff(document)), None)


def read_file(path: Path, context: Context | None = None) -> Trace:
    """Read one file of any known format. Raises NeuronTbError with one sentence otherwise."""
    document = open_document(path)
    found = identify(document)
    if found is None:
        raise NeuronTbError(f"{path} is {document.description()}.")
    trace: Trace = found.reader.read(document, context or Context())
    return trace
