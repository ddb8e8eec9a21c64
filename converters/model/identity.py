"""Numbers made of names, so that files written by different processes can be joined."""

from __future__ import annotations

import hashlib


def stable_hash(*key: object, bits: int = 64) -> int:
    """A number other than 0, of so many bits, that only depends on the key's text."""
    text = repr(key).encode("utf-8", "backslashreplace")
    digest = hashlib.blake2b(text, digest_size=8).digest()
    return (int.from_bytes(digest, "little") >> (64 - bits)) or 1
