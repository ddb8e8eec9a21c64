"""Sources that are URLs: copied to the user's cache as far as they have changed, and read there."""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import unquote, urlparse

from neuron_tb.converters.errors import NeuronTbError
from neuron_tb.converters.storage.output import replacing_file, safe_name
from neuron_tb.converters.storage.stores import AT_ONCE, Place, is_url, plainly, system_of

_NEVER_OPENED = (".ntff", ".neff", ".pickle", ".pkl")
_INDEX = "index.json"
_MOST_FILES = 100_000
_KEPT_SECONDS = 30 * 86_400
_VERSION_KEYS = ("ETag", "etag", "md5Hash", "mtime", "LastModified", "last_modified", "created")


def local_source(place: Place) -> Path:
    """A path to read: the place itself, or a copy of what the URL holds.

    Raises NeuronTbError when fsspec is not installed, or when nothing can be read there.
    """
    if not is_url(place):
        return Path(place)
    url = str(place)
    if url.startswith("file://"):
        return Path(unquote(urlparse(url).path))
    with plainly(url, "read"):
        return _Copy(url).update()


class _Copy:
    """The copy of a URL's files in the cache."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._system, self._root = system_of(url)
        name = safe_name(PurePosixPath(self._root).name, "source")
        cache = _cache()
        self._home = cache / sha256(url.encode()).hexdigest()[:20]
        self._place = self._home / name
        _prune(cache)

    def update(self) -> Path:
        """Fetch what is new or has changed; where the copy is."""
        found = self._system.find(self._root, detail=True)
        if not found:
            raise NeuronTbError(f"{self._url} does not exist, or holds no file.")
        if len(found) > _MOST_FILES:
            raise NeuronTbError(f"{self._url} holds over {_MOST_FILES:,} files; name the capture.")
        single = len(found) == 1 and next(iter(found)).rstrip("/") == self._root.rstrip("/")
        wanted = {}
        for path, info in found.items():
            place = self._place if single else self._place / self._relative(path)
            wanted[path] = place, _version(info)
        known = self._index()
        stale = [
            path
            for path, (place, version) in wanted.items()
            if known.get(path) != version or not place.is_file()
        ]
        self._remove_others({place for place, _ in wanted.values()})
        self._fetch([(path, wanted[path][0]) for path in stale])
        versions = {path: version for path, (_, version) in wanted.items()}
        with replacing_file(self._home / _INDEX) as file:
            file.write(json.dumps(versions).encode())
        os.utime(self._home)
        return self._place

    def _relative(self, path: str) -> Path:
        inner = PurePosixPath(path[len(self._root.rstrip("/")) :].lstrip("/"))
        if inner.is_absolute() or ".." in inner.parts:
            raise NeuronTbError(f"{self._url} holds a file whose name leaves the folder: {path}.")
        return Path(*inner.parts)

    def _fetch(self, files: Sequence[tuple[str, Path]]) -> None:
        """Copy files; what is never opened becomes an empty file of its name."""
        opened = shutil.which("neuron-explorer") is not None
        wanted = []
        for path, place in files:
            place.parent.mkdir(parents=True, exist_ok=True)
            if place.suffix in _NEVER_OPENED and not opened:
                place.write_bytes(b"")
            else:
                wanted.append((path, place))
        for first in range(0, len(wanted), AT_ONCE):
            some = wanted[first : first + AT_ONCE]
            aside = [place.with_name(f".{place.name}.part") for _, place in some]
            self._system.get([path for path, _ in some], list(map(str, aside)))
            for part, (_, place) in zip(aside, some, strict=True):
                part.replace(place)

    def _index(self) -> dict[str, str]:
        try:
            known = json.loads((self._home / _INDEX).read_bytes())
        except (OSError, ValueError):
            return {}
        return known if isinstance(known, dict) else {}

    def _remove_others(self, places: set[Path]) -> None:
        """Files that are gone at the source would still be read."""
        for path in self._place.rglob("*") if self._place.is_dir() else ():
            if path.is_file() and path not in places:
                path.unlink()


def _version(info: dict[str, Any]) -> str:
    """What changes when a file changes: its size and its tag or time."""
    tag = next((info[key] for key in _VERSION_KEYS if info.get(key) is not None), "")
    return f"{info.get('size')} {tag}"


def _cache() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "neuron_tb" / "remote"


def _prune(cache: Path) -> None:
    """Copies that nobody has read for a month go."""
    for home in cache.iterdir() if cache.is_dir() else ():
        if home.stat().st_mtime < time.time() - _KEPT_SECONDS:
            shutil.rmtree(home, ignore_errors=True)
