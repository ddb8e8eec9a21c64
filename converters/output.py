"""Files appear whole or not at all: written aside, flushed, renamed."""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from neuron_tb.converters.errors import NeuronTbError

TEMPORARY = ".neuron-tb-"
"""Prefix of everything unfinished; no viewer's file pattern matches it."""

_LONGEST_NAME = 120


def safe_name(text: str, default: str = "capture") -> str:
    """``text`` as one path component: names from a trace are data and cannot leave the folder."""
    name = re.sub(r"[^\w.+=@-]+", "_", text).strip("._ ")[:_LONGEST_NAME]
    return name or default


@contextmanager
def replacing_file(path: Path) -> Iterator[BinaryIO]:
    """A binary file that takes the place of ``path`` when the block ends without an exception."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(prefix=TEMPORARY, dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.chmod(temporary, 0o666 & ~_umask())
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


@contextmanager
def replacing_directory(path: Path) -> Iterator[Path]:
    """An empty directory that takes the place of ``path`` when the block ends well."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = Path(tempfile.mkdtemp(prefix=TEMPORARY, dir=path.parent))
    try:
        yield temporary
        os.chmod(temporary, 0o777 & ~_umask())
        old = temporary.with_name(temporary.name + "-old")
        if path.exists():
            os.replace(path, old)
        os.replace(temporary, path)
        shutil.rmtree(old, ignore_errors=True)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise


def refuse_overwrite(path: Path, force: bool) -> None:
    """Raise NeuronTbError when ``path`` exists and may not be replaced."""
    if path.exists() and not force:
        raise NeuronTbError(f"{path} exists already; add --force to replace it.")


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
