"""The PyTorch plugin's files of several ranks in one run's folder: a worker each."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from neuron_tb.converters.errors import NeuronTbError
from neuron_tb.converters.joining import Identity, Part
from neuron_tb.converters.joining.files import take
from neuron_tb.converters.joining.json_files import head_of, identity_of, rewrite, slices_of
from neuron_tb.converters.storage.output import refuse_overwrite, replacing_directory
from neuron_tb.converters.writers import Destination, Written
from neuron_tb.converters.writers.torch_tb.write import TARGET, file_names, refuse_foreign_files

_SECOND_NS = 1_000_000_000
_NAME = re.compile(r"(?P<host>.+)_(?P<pid>\d+)(_rank\d+)?\.(?P<time>\d+)\.pt\.trace\.json\.gz")


def join(files: Sequence[Part], destination: Destination) -> list[Written]:
    """Write ``OUT/RUN/HOST_PID.TIME.pt.trace.json.gz``, one file per process, all at once."""
    folder = destination.out / destination.run
    refuse_overwrite(folder, destination.force)
    refuse_foreign_files(folder)
    found = []
    for part in files:
        head = head_of(part.path)
        match = _NAME.fullmatch(part.path.name)
        if match is None:
            raise NeuronTbError(f"{part.path} has no name of the PyTorch plugin's.")
        identity = identity_of(head) or Identity(match["host"], int(match["pid"]), None)
        time_ns = int(match["time"]) + part.later_ns
        found.append((identity, time_ns, part, slices_of(head)))
    found.sort(key=lambda item: (item[0].order, item[1]))
    names = file_names([(i.host, i.pid, i.rank, time) for i, time, _, _ in found])
    with replacing_directory(folder) as temporary:
        aside = [temporary / f"{number}.unfinished" for number in range(len(found))]
        for (_, _, part, _), place in zip(found, aside, strict=True):
            if part.later_ns:
                _move(part, place)
            else:
                take(part, place)
        # TensorBoard may be looking already: no name fits its pattern until all files are whole.
        for place, name in zip(aside, names, strict=True):
            place.rename(temporary / name)
    return [
        Written(TARGET, folder / name, slices)
        for name, (_, _, _, slices) in zip(names, found, strict=True)
    ]


def _move(part: Part, place: Path) -> None:
    """A copy with later times: the base by whole seconds, so that no time is negative."""
    head = head_of(part.path)
    seconds, rest = divmod(part.later_ns, _SECOND_NS)
    if isinstance(head.get("baseTimeNanoseconds"), int):
        head["baseTimeNanoseconds"] += seconds * _SECOND_NS
        rewrite(part.path, place, head, rest, part.later_ns)
    else:
        rewrite(part.path, place, head, part.later_ns, part.later_ns)
