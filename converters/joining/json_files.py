"""JSON files of ranks: read their heads, and write them anew with another rank or base time."""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, TextIO

from neuron_tb.converters.joining import Identity, reading
from neuron_tb.converters.writers.chrome_json import GZIP_LEVEL, METADATA_KEY

_EVENTS = '"traceEvents": ['
_LONGEST_LINE = 1 << 26
_OWN_TIME = '"first physical core ns"'
_OWN_TIMES = re.compile(r'("first physical core ns": ?\[)(\d+)')
_TIME = re.compile(r'"ts": (\d+)\.(\d{3})')


def head_of(path: Path) -> dict[str, Any]:
    """The keys before the events of a file that ``neuron-tb convert`` wrote.

    Raises NeuronTbError for any other file.
    """
    lines: list[str] = []
    with reading(path), gzip.open(path, "rt", encoding="latin-1") as file:
        for line in _lines(file):
            if line.startswith(_EVENTS):
                break
            lines.append(line)
        head = json.loads("".join(lines).rstrip().removesuffix(",") + "}")
        slices_of(head)
    return dict(head)


def _lines(file: TextIO) -> Iterator[str]:
    """The lines of a file; ValueError where one is longer than any of ours."""
    while line := file.readline(_LONGEST_LINE):
        if len(line) == _LONGEST_LINE:
            raise ValueError("a line without an end")
        yield line


def slices_of(head: Mapping[str, Any]) -> int:
    """How many slices a file says that it shows."""
    return int(head[METADATA_KEY]["slices"])


def identity_of(head: Mapping[str, Any]) -> Identity | None:
    """The process that a file's head names; None in files of an older version."""
    return Identity.of(head[METADATA_KEY].get("process"))


def rewrite(
    source: Path, target: Path, head: Mapping[str, Any], later_ns: int, moved_ns: int
) -> None:
    """Copy a file with another head and all its times ``later_ns`` later after its base.

    ``moved_ns``: by how much they are later on the time line, which a writer's own arguments that
    are times follow.
    """
    with (
        reading(source),
        gzip.open(source, "rt", encoding="latin-1", newline="\n") as old,
        gzip.open(target, "wt", GZIP_LEVEL, encoding="latin-1", newline="\n") as new,
    ):
        lines = _lines(old)
        for line in lines:
            if line.startswith(_EVENTS):
                break
        new.write("{\n")
        new.writelines(f"{json.dumps(key)}: {json.dumps(value)},\n" for key, value in head.items())
        new.write(_EVENTS + "\n")
        if not later_ns and not moved_ns:
            new.writelines(lines)
            return
        # An event stands on one line, its time before its arguments, and in its name no bare
        # quotation mark: the first match is the time.
        for line in lines:
            line = _TIME.sub(lambda match: _moved(match, later_ns), line, count=1)
            if moved_ns and _OWN_TIME in line:
                line = _OWN_TIMES.sub(lambda m: f"{m[1]}{int(m[2]) + moved_ns}", line)
            new.write(line)


def _moved(match: re.Match[str], later_ns: int) -> str:
    whole, rest = divmod(int(match[1]) * 1000 + int(match[2]) + later_ns, 1000)
    return f'"ts": {whole}.{rest:03d}'
