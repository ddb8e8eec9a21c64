"""JSON files of ranks: read their heads, and write them anew with another rank or base time."""

from __future__ import annotations

import gzip
import json
import re
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from neuron_tb.converters.errors import NeuronTbError
from neuron_tb.converters.joining import Identity
from neuron_tb.converters.writers.chrome_json import GZIP_LEVEL, METADATA_KEY

_EVENTS = '"traceEvents": ['
_LARGEST_HEAD = 1 << 26
_OWN_TIME = '"first physical core ns"'
_OWN_TIMES = re.compile(r'("first physical core ns": ?\[)(\d+)')
_TIME = re.compile(r'"ts": (\d+)\.(\d{3})')


def head_of(path: Path) -> dict[str, Any]:
    """The keys before the events of a file that ``neuron-tb convert`` wrote.

    Raises NeuronTbError for any other file.
    """
    lines: list[str] = []
    size = 0
    try:
        with gzip.open(path, "rt", encoding="latin-1") as file:
            for line in file:
                size += len(line)
                if line.startswith(_EVENTS) or size > _LARGEST_HEAD:
                    break
                lines.append(line)
        head = json.loads("".join(lines).rstrip().removesuffix(",") + "}")
        if isinstance(head[METADATA_KEY], dict):
            return dict(head)
    except (OSError, EOFError, ValueError, KeyError, zlib.error):
        pass
    raise NeuronTbError(f"{path} was not written by neuron-tb convert and cannot be joined.")


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
        gzip.open(source, "rt", encoding="latin-1", newline="\n") as old,
        gzip.open(target, "wt", GZIP_LEVEL, encoding="latin-1", newline="\n") as new,
    ):
        for line in old:
            if line.startswith(_EVENTS):
                break
        new.write("{\n")
        new.writelines(f"{json.dumps(key)}: {json.dumps(value)},\n" for key, value in head.items())
        new.write(_EVENTS + "\n")
        if not later_ns and not moved_ns:
            new.writelines(old)
            return
        # An event stands on one line, its time before its arguments, and in its name no bare
        # quotation mark: the first match is the time.
        for line in old:
            line = _TIME.sub(lambda match: _moved(match, later_ns), line, count=1)
            if moved_ns and _OWN_TIME in line:
                line = _OWN_TIMES.sub(lambda m: f"{m[1]}{int(m[2]) + moved_ns}", line)
            new.write(line)


def _moved(match: re.Match[str], later_ns: int) -> str:
    whole, rest = divmod(int(match[1]) * 1000 + int(match[2]) + later_ns, 1000)
    return f'"ts": {whole}.{rest:03d}'
