"""Destinations that are URLs: results are made in a temporary folder and uploaded.

The list of the run's files, ``RUN.json``, goes last, so while it is missing the run is not
complete there either.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import unquote, urlparse

from neuron_tb.converters.errors import NeuronTbError
from neuron_tb.converters.running.manifest import document_in
from neuron_tb.converters.storage.stores import AT_ONCE, Place, is_url, plainly, system_of
from neuron_tb.converters.writers import Written


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
        with plainly(url, "written"):
            self._system, self._root = system_of(self._url)

    def refuse_overwrite(self, run: str, targets: Sequence[str]) -> None:
        """Raise NeuronTbError when the run has files of these targets and they may not go."""
        with plainly(self._url, "read"):
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
        with plainly(self._url, "written"):
            earlier = [e for e in self._listed(run) if e["target"] not in targets]
            self._forget(run, targets)
            files = [entry["path"] for entry in document["files"]]
            for first in range(0, len(files), AT_ONCE):
                some = files[first : first + AT_ONCE]
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
