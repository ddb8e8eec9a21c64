"""Files appear whole or not at all: written aside, flushed, renamed."""

from __future__ import annotations

import errno
import os
import re
import shutil
import socket
import tempfile
import unicodedata
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from neuron_tb.converters.errors import NeuronTbError

TEMPORARY = ".neuron-tb-"
"""Prefix of everything unfinished; no viewer's file pattern matches it."""

_LONGEST_NAME = 120
_RETRIES = 20


def safe_name(text: str, default: str = "capture") -> str:
    """``text`` as one path component: names from a trace are data and cannot leave the folder."""
    name = re.sub(r"[^\w.+=@-]+", "_", text).strip("._ ")
    while len(name.encode()) > _LONGEST_NAME:
        name = name[:-1]
    return name.strip("._ ") or default


def same_file(name: str) -> str:
    """A key that is equal for names that are one file where letter case does not count."""
    return unicodedata.normalize("NFC", name).casefold()


@contextmanager
def replacing_file(path: Path, force: bool = True) -> Iterator[BinaryIO]:
    """A binary file that takes the place of ``path`` when the block ends without an exception.

    Without ``force`` a file that appears there meanwhile is kept, and NeuronTbError raised.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(prefix=_own_prefix(), dir=path.parent)
    temporary = Path(name)
    try:
        with os.fdopen(handle, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        temporary.chmod(0o666 & ~_umask())
        if not force:
            refuse_overwrite(path, force)
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


@contextmanager
def replacing_directory(path: Path, force: bool = True) -> Iterator[Path]:
    """An empty directory that takes the place of ``path`` when the block ends well.

    Files in it are flushed before the one rename that publishes them. Without ``force`` a
    directory that appears there meanwhile is kept, and NeuronTbError raised.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = Path(tempfile.mkdtemp(prefix=_own_prefix(), dir=path.parent))
    try:
        yield temporary
        for file in temporary.rglob("*"):
            _flush(file)
        temporary.chmod(0o777 & ~_umask())
        if not force:
            refuse_overwrite(path, force)
        _take_place(temporary, path)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise


def refuse_overwrite(path: Path, force: bool) -> None:
    """Raise NeuronTbError when ``path`` exists and may not be replaced."""
    if path.exists() and not force:
        raise NeuronTbError(f"{path} exists already; add --force to replace it.")


def own_mark() -> str:
    """A text that names this process on this machine."""
    return _own_prefix()


def is_running_here(mark: str) -> bool:
    """Whether the process of a mark runs; of another machine's that cannot be known: True."""
    match = re.match(rf"{re.escape(_machine_prefix())}(\d+)-", mark)
    return match is None or _is_running(int(match[1]))


def remove_leftovers(directory: Path) -> None:
    """Remove what interrupted runs of this machine left unfinished in a directory."""
    if not directory.is_dir():
        return
    for path in directory.glob(f"{TEMPORARY}*"):
        match = re.match(rf"{re.escape(_machine_prefix())}(\d+)-", path.name)
        if match and not _is_running(int(match[1])):
            if path.is_dir():
                shutil.rmtree(path, ignore_errors=True)
            else:
                path.unlink(missing_ok=True)


def _take_place(temporary: Path, path: Path) -> None:
    """Rename a directory over another, which other processes may be doing as well."""
    old = temporary.with_name(temporary.name + "-old")
    for _ in range(_RETRIES):
        try:
            temporary.rename(path)
            break
        except OSError as error:
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR):
                raise
        try:
            path.rename(old)
        except FileNotFoundError:
            continue
        shutil.rmtree(old, ignore_errors=True)
    else:
        raise NeuronTbError(f"{path} is being written by other programs as well; try again.")


def _flush(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _machine_prefix() -> str:
    return f"{TEMPORARY}{zlib.crc32(socket.gethostname().encode()):08x}-"


def _own_prefix() -> str:
    return f"{_machine_prefix()}{os.getpid()}-"


def _is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
