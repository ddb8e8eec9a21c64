"""``OUT/RUN.json``: written last, so its presence says that the run is complete."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

import msgspec

import neuron_tb
from neuron_tb.converters.errors import NeuronTbError
from neuron_tb.converters.findings import Findings
from neuron_tb.converters.storage.output import is_running_here, own_mark, replacing_file
from neuron_tb.converters.writers import Written

SCHEMA = "neuron-tb run"
_UNFINISHED = ".json.unfinished"


class _File(msgspec.Struct):
    target: str
    path: str
    bytes: int | None = None


class _Finding(msgspec.Struct):
    kind: str
    count: int
    message: str
    where: str | None = None


class _Content(msgspec.Struct):
    """What a list may hold; it lies beside results, where others can write too."""

    schema: str
    run: str = ""
    by: str = ""
    sources: list[str] = []
    files: list[_File] = []
    findings: list[_Finding] = []
    complete: dict[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class Manifest:
    """The list of a run's files in ``out``, named after the run."""

    out: Path
    run: str

    @property
    def path(self) -> Path:
        """Where it stands."""
        return self.out / f"{self.run}.json"

    @property
    def interrupted(self) -> bool:
        """True when a conversion of this run began, did not end, and is not going on."""
        document = document_of(self._unfinished)
        return document is not None and not is_running_here(str(document.get("by", "")))

    def begin(self) -> None:
        """Say that the run is not complete from now on.

        The list of an earlier conversion is kept aside for ``complete``, for a run may be
        written in parts (``--to perfetto`` now and ``--to xprof`` later).
        """
        if self.path.exists() and self.entries() is None:
            raise NeuronTbError(f"{self.path} is no list of a run's files; move it away.")
        earlier = self.entries() or _entries(self._unfinished) or []
        document = {
            "schema": SCHEMA,
            "by": own_mark(),
            "files": earlier,
            "complete": document_of(self.path),
        }
        with replacing_file(self._unfinished) as file:
            file.write(json.dumps(document).encode())
        self.path.unlink(missing_ok=True)

    def abandon(self) -> None:
        """Nothing was written after all: the run is what it was before ``begin``."""
        mark = document_of(self._unfinished)
        if mark is not None and mark.get("complete"):
            with replacing_file(self.path) as file:
                file.write(_text(mark["complete"]))
        self._unfinished.unlink(missing_ok=True)

    def complete(
        self, sources: Sequence[str], written: Sequence[Written], findings: Findings
    ) -> None:
        """Write the list: earlier files of the run that still stand, and the new ones."""
        new = [self._entry(file) for file in written if file.path is not None]
        targets = {file.target for file in written}
        kept = [
            entry
            for entry in _entries(self._unfinished) or []
            if entry["target"] not in targets and (self.out / entry["path"]).exists()
        ]
        document = {
            "schema": SCHEMA,
            "run": self.run,
            "neuron_tb": neuron_tb.__version__,
            "sources": list(sources),
            "files": kept + new,
            "skipped": {f.target: f.skipped for f in written if f.path is None},
            "findings": findings.as_dicts(),
        }
        with replacing_file(self.path) as file:
            file.write(_text(document))
        self._unfinished.unlink(missing_ok=True)

    def entries(self) -> list[dict[str, Any]] | None:
        """The complete run's files, None when there is none.

        Each has ``target``, ``path`` (below ``out``), ``slices`` and ``bytes``.
        """
        return _entries(self.path)

    @property
    def _unfinished(self) -> Path:
        return self.path.with_name(f"{self.run}{_UNFINISHED}")

    def _entry(self, file: Written) -> dict[str, Any]:
        assert file.path is not None
        return {
            "target": file.target,
            "path": file.path.relative_to(self.out).as_posix(),
            "slices": file.slices,
            "bytes": file.path.stat().st_size,
        }


def unfinished_runs(out: Path) -> list[Path]:
    """Marks of conversions below ``out`` that began and did not end."""
    return sorted(path for path in out.glob(f"*{_UNFINISHED}") if document_of(path) is not None)


def _text(document: dict[str, Any]) -> bytes:
    return json.dumps(document, indent=1, ensure_ascii=False).encode()


def document_of(path: Path) -> dict[str, Any] | None:
    """The list of a run's files at this path, None when there is none."""
    try:
        return document_in(path.read_bytes()) if path.is_file() else None
    except OSError:
        return None


def document_in(text: bytes) -> dict[str, Any] | None:
    """The list of a run's files that this text is, None when it is none.

    The paths in it stay below the folder that it stands in.
    """
    try:
        # All of it first: decoding by type skips over unknown keys without a look at their text.
        document: dict[str, Any] = msgspec.json.decode(text)
        content = msgspec.convert(document, _Content)
    except (msgspec.MsgspecError, RecursionError):
        return None
    if content.schema != SCHEMA or not all(_stays_inside(file.path) for file in content.files):
        return None
    return document


def _stays_inside(path: str) -> bool:
    place = PurePosixPath(path)
    return not place.is_absolute() and ".." not in place.parts and "\0" not in path


def _entries(path: Path) -> list[dict[str, Any]] | None:
    document = document_of(path)
    return None if document is None else list(document.get("files", []))
