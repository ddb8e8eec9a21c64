"""Cutting values out of JSON that is nested deeper than any decoder goes."""

from __future__ import annotations

import re

from neuron_tb.converters.readers.json import bounds

_TOKEN = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"|[\[{]|[\]}]', re.DOTALL)
_OPENING = b"[{"


def without_deep_values(data: bytes) -> tuple[bytes, list[int]]:
    """The text with ``null`` for every value deeper than ``bounds.MAX_DEPTH``, and their places.

    Where brackets do not match, the text comes back as it is.
    """
    parts: list[bytes | memoryview] = []
    places: list[int] = []
    depth = done = 0
    for token in _TOKEN.finditer(data):
        first = data[token.start()]
        if first in _OPENING:
            depth += 1
            if depth == bounds.MAX_DEPTH + 1:
                parts.append(memoryview(data)[done : token.start()])
                parts.append(b"null")
                places.append(token.start())
        elif first in b"]}":
            depth -= 1
            if depth == bounds.MAX_DEPTH:
                done = token.end()
    if depth or not places:
        return data, []
    parts.append(memoryview(data)[done:])
    return b"".join(parts), places
