"""The process that converts one window: ``python -m neuron_tb.profiler.convert_window TASK``.

Several ranks write into one run, so files are made aside and then moved under names of their own.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

from neuron_tb.converters.convert import convert, run_name
from neuron_tb.converters.errors import NeuronTbError
from neuron_tb.converters.storage.output import TEMPORARY, safe_name


def main() -> int:
    """Convert as the task says; a sentence on standard error and 1 when that fails."""
    task = json.loads(sys.argv[1])
    out = Path(task["out"])
    out.mkdir(parents=True, exist_ok=True)
    aside = Path(tempfile.mkdtemp(prefix=TEMPORARY, dir=out))
    try:
        convert(
            *task["sources"],
            out=aside,
            to=task["formats"],
            run=run_name(task["run"]),
            local_rank=_local_rank(),
        )
        _move(aside, out, task)
    except (NeuronTbError, OSError) as error:
        sys.stderr.write(f"{error}\n")
        return 1
    finally:
        shutil.rmtree(aside, ignore_errors=True)
    return 0


def _local_rank() -> int:
    text = os.environ.get("LOCAL_RANK", "")
    return int(text) if text.isdigit() else 0


def _move(aside: Path, out: Path, task: dict[str, Any]) -> None:
    for path in sorted(p for p in aside.rglob("*") if p.is_file()):
        place = out / path.relative_to(aside)
        if task["rank"] is not None:
            if path.parent == aside:
                # The list of a run's files speaks for one conversion; this run has several.
                continue
            place = place.with_name(_name_of_rank(place.name, task))
        place.parent.mkdir(parents=True, exist_ok=True)
        path.replace(place)


def _name_of_rank(name: str, task: dict[str, Any]) -> str:
    rank, host = task["rank"], safe_name(task["host"], "localhost")
    if name.endswith(".xplane.pb"):
        return f"{host}-rank{rank}.xplane.pb"
    if name.endswith(".pftrace"):
        return f"{name.removesuffix('.pftrace')}-rank{rank}.pftrace"
    worker, dot, rest = name.partition(".")
    return f"{worker}_rank{rank}{dot}{rest}"


if __name__ == "__main__":
    sys.exit(main())
