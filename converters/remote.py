"""Sources and destinations that are URLs: ``s3://…`` and whatever else fsspec reaches.

Sources are copied to the user's cache, file by file as far as they have changed, and read there.
Results are made in a temporary folder and uploaded; the list of the run's files, ``RUN.json``,
goes last, so while it is missing the run is not complete there either.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from hashlib import sha256
from importlib import import_module
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import unquote, urlparse

from neuron_tb.converters.errors import NeuronTbError
from neuron_tb.converters.manifest import document_in
from neuron_tb.converters.output import replacing_file, safe_name
from neuron_tb.converters.writers import Written

_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+://")
_NEVER_OPENED = (".ntff", ".neff", ".pickle", ".pkl")
_INDEX = "index.json"
_AT_ONCE = 32
_MOST_FILES = 100_000
_KEPT_SECONDS = 30 * 86_400
_VERSION_KEYS = ("ETag", "etag", "md5Hash", "mtime", "LastModified", "last_modified", "created")

Place = str | Path


def is_url(place: object) -> bool:
    """Whether a source or destination is a URL and no path."""
    return isinstance(place, str) and _URL.match(place) is not None


def local_source(place: Place) -> Path:
    """A path to read: the place itself, or a copy of what the URL holds.

    Raises NeuronTbError when fsspec is not installed, or when nothing can be read there.
    """
    if not is_url(place):
        return Path(place)
    url = str(place)
    if url.startswith("file://"):
        return Path(unquote(urlparse(url).path))
    with _plainly(url, "read"):
        return _Copy(url).update()


@contextmanager
def local_destination(place: Place, force: bool) -> Iterator[tuple[Path, Upload | None]]:
    """A folder to write results to, and what will upload them when the place is a URL.

    Raises NeuronTbError where something else than a folder stands there.
    """
    url = str(place)
    if not is_url(place) or url.startswith("file://"):
        folder = Path(unquote(urlparse(url).path)) if is_url(place) else Path(place)
        if not folder.is_dir() and (folder.exists() or folder.is_symlink()):
            raise NeuronTbError(f"{folder} is no folder; choose another place for the results.")
        yield folder, None
        return
    with tempfile.TemporaryDirectory(prefix="neuron-tb-upload-") as aside:
        yield Path(aside), Upload(url, Path(aside), force)


class Upload:
    """Runs that were written to ``folder`` for a place that a URL names."""

    def __init__(self, url: str, folder: Path, force: bool) -> None:
        self._url, self._folder, self._force = url.rstrip("/"), folder, force
        if self._url.endswith(":"):
            raise NeuronTbError(f"{url} names no bucket or folder.")
        with _plainly(url, "written"):
            self._system, self._root = _system_of(self._url)

    def refuse_overwrite(self, run: str, targets: Sequence[str]) -> None:
        """Raise NeuronTbError when the run has files of these targets and they may not go."""
        with _plainly(self._url, "read"):
            old = self._listed(run)
        known = [entry for entry in old if entry["target"] in targets]
        if known and not self._force:
            raise NeuronTbError(
                f"{self._url}/{known[0]['path']} exists already; add --force to replace it."
            )

    def run(self, run: str) -> None:
        """Upload a run: its files, then its list."""
        listing = self._folder / f"{run}.json"
        document = json.loads(listing.read_bytes())
        targets = {entry["target"] for entry in document["files"]}
        with _plainly(self._url, "written"):
            earlier = [e for e in self._listed(run) if e["target"] not in targets]
            self._forget(run, targets)
            files = [entry["path"] for entry in document["files"]]
            for first in range(0, len(files), _AT_ONCE):
                some = files[first : first + _AT_ONCE]
                self._system.put(
                    [str(self._folder / path) for path in some], [self._at(path) for path in some]
                )
            document["files"] = earlier + document["files"]
            text = json.dumps(document, indent=1, ensure_ascii=False).encode()
            self._system.pipe_file(self._at(f"{run}.json"), text)

    def moved(self, written: Sequence[Written]) -> list[Written]:
        """The rows of files with the places that they were uploaded to."""
        return [file if file.path is None else self._moved(file, file.path) for file in written]

    def _moved(self, file: Written, path: Path) -> Written:
        place = f"{self._url}/{path.relative_to(self._folder).as_posix()}"
        return replace(file, place=place, bytes=path.stat().st_size)

    def _at(self, path: str) -> str:
        return f"{self._root.rstrip('/')}/{path}"

    def _listed(self, run: str) -> list[dict[str, Any]]:
        path = self._at(f"{run}.json")
        if not self._system.exists(path):
            return []
        document = document_in(self._system.cat_file(path))
        if document is None:
            place = f"{self._url}/{run}.json"
            raise NeuronTbError(f"{place} is no list of a run's files; move it away.")
        return list(document.get("files", []))

    def _forget(self, run: str, targets: set[str]) -> None:
        """Take away the list, then the files of these targets and what XProf cached beside them."""
        old = [entry["path"] for entry in self._listed(run) if entry["target"] in targets]
        if self._system.exists(self._at(f"{run}.json")):
            self._system.rm_file(self._at(f"{run}.json"))
        folders = {str(PurePosixPath(path).parent) for path in old if path.startswith("plugins/")}
        paths = {self._at(path) for path in old}
        for folder in folders:
            paths.update(self._system.find(self._at(folder)))
        for path in sorted(paths):
            if self._system.exists(path):
                self._system.rm_file(path)


class _Copy:
    """The copy of a URL's files in the cache."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._system, self._root = _system_of(url)
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
        for first in range(0, len(wanted), _AT_ONCE):
            some = wanted[first : first + _AT_ONCE]
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


def _system_of(url: str) -> tuple[Any, str]:
    """Fsspec's file system of a URL, and the path in it."""
    try:
        core = import_module("fsspec.core")
    except ImportError as error:
        raise NeuronTbError(_MISSING.format(url=url)) from error
    try:
        system, path = core.url_to_fs(url)
    except ImportError as error:
        raise NeuronTbError(_MISSING.format(url=url)) from error
    system.invalidate_cache()
    return system, str(path)


_MISSING = (
    "{url} needs more packages: pip install 'neuron-tb[remote]' brings fsspec and s3fs; for other "
    "stores add fsspec's own package, such as gcsfs or adlfs."
)


@contextmanager
def _plainly(url: str, what: str) -> Iterator[None]:
    """Whatever a store's client raises becomes a sentence."""
    try:
        yield
    except NeuronTbError:
        raise
    except FileNotFoundError as error:
        raise NeuronTbError(f"{url} does not exist.") from error
    except Exception as error:
        reason = " ".join(str(error).split()) or type(error).__name__
        raise NeuronTbError(f"{url} cannot be {what}: {reason.rstrip('.')}.") from error


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
