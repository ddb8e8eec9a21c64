"""Device profiles as JSON: ``device_profile_model_<id>.json`` and ``summary-json``.

The first has a key per table: ``instruction``, ``dma``, ``summary`` and others, written by
``neuron-profile`` (``timestamp`` and ``duration``, the engine under ``label``) or by
``neuron-explorer`` (the columns of its Parquet tables). The second is an object of rows of the
table ``Summary``: device profiles under ``n_<hash>``, system profiles under ``s_<hash>``.
Numbers may be written as text. Times are nanoseconds.

Format: AWS Neuron documentation, "neuron-profile" and "Neuron Explorer", output formats.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa

from neuron_tb.converters.errors import NeuronTbError
from neuron_tb.converters.model import Trace
from neuron_tb.converters.readers.context import Context
from neuron_tb.converters.readers.device.names import MARKS, SUMMARY_KEY, profile_name, table_of_key
from neuron_tb.converters.readers.device.read import read_tables
from neuron_tb.converters.readers.device.tables import DeviceTables, Loader, table_from_rows
from neuron_tb.converters.readers.json.document import Document, open_document, read_text


def open_loosely(path: Path) -> Document:
    """A document that may hold NaN and Infinity, which JSON has not: they are dropped.

    Raises NeuronTbError for what is no JSON for another reason.
    """
    try:
        return open_document(path)
    except NeuronTbError as error:
        dropped: list[str] = []
        try:
            found = json.loads(read_text(path)[:], parse_constant=dropped.append)
        except (ValueError, RecursionError):
            found = None
        if not dropped or not isinstance(found, dict):
            raise error
        keys = {key: msgspec.Raw(msgspec.json.encode(value)) for key, value in found.items()}
        document = Document(path, b"", keys)
        document.findings.add(
            "not_a_number",
            "values that are no numbers (NaN, Infinity) were dropped",
            len(dropped),
            where=path.name,
        )
        return document


def sniff(document: Document) -> bool:
    """Whether the document has a table of a device profile, or is a summary of profiles."""
    if document.array or not document.keys:
        return False
    if any(table_of_key(key) == "" for key in document.keys):
        return False
    return _is_summary(document) or any(
        table_of_key(key) in MARKS and _opening(raw) == b"[" for key, raw in document.keys.items()
    )


def read(document: Document, context: Context, instructions: bool = False) -> Trace:
    """Read one file. Raises NeuronTbError when none of its tables is known."""
    return read_tables(open_json(document), context, instructions)


def open_json(document: Document) -> DeviceTables:
    """The tables of a document. Raises NeuronTbError for a summary of no device profile."""
    if _is_summary(document):
        loaders = _of_summary(document)
    else:
        loaders = {
            table_of_key(key): _loader(document, key)
            for key, raw in document.keys.items()
            if _opening(raw) in (b"[", b"{")
        }
    return DeviceTables(profile_name(document.path), document.path, loaders)


def _opening(raw: msgspec.Raw) -> bytes:
    """The first character of a value, which may be large."""
    return memoryview(raw)[:64].tobytes().lstrip()[:1]


def _loader(document: Document, key: str) -> Loader:
    def load() -> pa.Table:
        value = document.value(document.keys[key])
        rows = value if isinstance(value, list) else [value]
        return table_from_rows([row for row in rows if isinstance(row, dict)])

    return load


def _is_summary(document: Document) -> bool:
    keys = list(document.keys)
    return all(map(SUMMARY_KEY.fullmatch, keys)) and any(k.startswith("n_") for k in keys)


def _of_summary(document: Document) -> dict[str, Loader]:
    rows: list[dict[str, Any]] = []
    for key, raw in document.keys.items():
        value = document.value(raw)
        if key.startswith("n_"):
            found = value if isinstance(value, list) else [value]
            rows += [{"profile": key, **row} for row in found if isinstance(row, dict)]
    if not rows:
        raise NeuronTbError(f"{document.path} holds no summary of a device profile.")
    return {"Summary": lambda: table_from_rows(rows)}
