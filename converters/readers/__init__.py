"""Files to Traces: a folder per family of formats; ``FORMATS`` is the only list of them.

Comes in: a file, or a directory of tables. Goes out: a Trace on the file's own clock. Promise:
what can be read is read, what cannot is counted, and no reader knows who will write the rows.

A reader of JSON has ``sniff(document) -> bool``, which decides by the document's structure, and
``read(document, context) -> Trace``; a reader of another container is known by the container's
first bytes or the end of its name and has ``read(path, context) -> Trace``.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from neuron_tb.converters.errors import NeuronTbError
from neuron_tb.converters.findings import Findings
from neuron_tb.converters.model import Trace
from neuron_tb.converters.readers.context import Context
from neuron_tb.converters.readers.device.names import could_be_device_document
from neuron_tb.converters.readers.era import within_one_era
from neuron_tb.converters.readers.json.document import Document, open_document
from neuron_tb.converters.readers.neuron.device_clock import on_host_clock

if TYPE_CHECKING:
    from neuron_tb.converters.readers.device.tables import DeviceTables


@dataclass(frozen=True, slots=True)
class Format:
    """An input format: its reader's module, what to call it, and whether it is Neuron's own.

    ``module``: relative to this package, or any other that can be imported. ``system``: its
    processes have no framework operators of their own and join those of a framework trace.
    ``magic``: the first bytes of the container, when it is not JSON. ``suffix``: the end of its
    file names, where a container has no first bytes of its own. ``anywhere``: files with that
    suffix are captures wherever they lie, not only where they are named or stand in AWS's layout.
    ``could_be``: whether a JSON document's top-level keys allow it to be this; what they rule out
    is not even imported.
    """

    module: str
    title: str
    system: bool
    magic: bytes = b""
    suffix: str = ""
    anywhere: bool = False
    could_be: Callable[[Collection[str]], bool] = bool

    @property
    def reader(self) -> ModuleType:
        """The module, imported when it is needed."""
        return import_module(self.module, __name__)


def _has(*names: str) -> Callable[[Collection[str]], bool]:
    return lambda keys: any(name in keys for name in names)


KINETO = Format(
    ".kineto.read", "framework trace (Chrome JSON)", system=False, could_be=_has("traceEvents")
)
EXPLORER_TABLES = Format(
    ".neuron.explorer_parquet", "Neuron Explorer tables (Parquet)", system=True, magic=b"PAR1"
)
FORMATS = [
    EXPLORER_TABLES,
    Format(".ntrace.read", "raw trace of the Neuron runtime", system=True, suffix=".pb"),
    Format(
        ".neuron.system_profile",
        "Neuron system profile (JSON)",
        system=True,
        could_be=_has("trace_events", "trace_event"),
    ),
    Format(
        ".device.json_tables",
        "Neuron device profile (JSON)",
        system=True,
        could_be=could_be_device_document,
    ),
    Format(
        ".neuron.nrt_events",
        "dump of the Neuron runtime's events (JSON)",
        system=True,
        could_be=_has("events"),
    ),
    KINETO,
]
"""Known containers first, then JSON documents from the most to the least specific."""


@contextmanager
def _collector_paused() -> Iterator[None]:
    """Reading makes many objects and no cycles; looking for cycles takes a fifth of its time."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


@_collector_paused()
def read_source(path: Path, context: Context | None = None) -> tuple[Trace, Format]:
    """Read a file (or a directory of tables) of any known format.

    Raises NeuronTbError, with one sentence, when it is none.
    """
    context = context or Context()
    container = _container(path)
    if container is not None:
        trace: Trace = container.reader.read(path, context)
        return _on_one_clock(trace, container), container
    document = open_document(path)
    found = identify(document)
    if found is None:
        raise NeuronTbError(f"{path} is {document.description()}.")
    trace = found.reader.read(document, context)
    trace.findings.extend(document.findings)
    return trace if found is KINETO else _on_one_clock(trace, found), found


def _on_one_clock(trace: Trace, form: Format) -> Trace:
    return within_one_era(on_host_clock(trace) if form.system else trace)


def read_device_profile(path: Path, context: Context, instructions: bool = False) -> Trace:
    """Read a device profile: a directory of tables, one table, or a JSON file.

    The Trace has a relative clock; ``instructions``: single instructions, DMA packets and
    semaphores too. Raises NeuronTbError, with one sentence, when it is none.
    """
    from neuron_tb.converters.readers.device.read import read_tables

    tables, findings = _device_tables(path)
    trace = read_tables(tables, context, instructions)
    trace.findings.extend(findings)
    return trace


def read_device_facts(path: Path, context: Context) -> dict[str, Any]:
    """What a device profile says of itself as a whole, without its rows.

    The keys are those of ``device.facts.facts_of``. Raises NeuronTbError.
    """
    from neuron_tb.converters.readers.device.facts import facts_of

    return facts_of(_device_tables(path)[0], context)


def _device_tables(path: Path) -> tuple[DeviceTables, Findings]:
    from neuron_tb.converters.readers.device import json_tables
    from neuron_tb.converters.readers.device.tables import open_parquet

    if path.is_dir() or path.suffix == ".parquet":
        return open_parquet(path), Findings()
    document = json_tables.open_loosely(path)
    if not json_tables.sniff(document):
        raise NeuronTbError(f"{path} holds no table of a device profile that is known here.")
    return json_tables.open_json(document), document.findings


def read_file(path: Path, context: Context | None = None) -> Trace:
    """The Trace of ``read_source``."""
    return read_source(path, context)[0]


def identify(document: Document) -> Format | None:
    """The format of an opened JSON document, or None."""
    of_json = (form for form in FORMATS if not form.magic and not form.suffix)
    likely = (form for form in of_json if document.array or form.could_be(document.keys))
    return next((form for form in likely if form.reader.sniff(document)), None)


def format_anywhere(path: Path) -> Format | None:
    """The format that a file has wherever it lies, by its name alone; None for most files."""
    return next((form for form in FORMATS if form.anywhere and _named(path, form)), None)


def _container(path: Path) -> Format | None:
    if path.is_dir():
        return EXPLORER_TABLES
    try:
        with path.open("rb") as file:
            head = file.read(16)
    except OSError as error:
        raise NeuronTbError(f"{path} cannot be read: {error.strerror}.") from error
    return next(
        (f for f in FORMATS if (f.magic and head.startswith(f.magic)) or _named(path, f)),
        None,
    )


def _named(path: Path, form: Format) -> bool:
    # XProf's files end so too, and JSON's reader knows what to call them.
    named = form.suffix != "" and path.name.endswith(form.suffix)
    return named and not path.name.endswith(".xplane.pb")
