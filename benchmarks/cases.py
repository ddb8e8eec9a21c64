"""What is measured, and the bars: ratios to a fresh ``json.load`` of the same file."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from benchmarks import generate
from benchmarks.measure import CommandError, Measured, repeated, run

_PYTHON = sys.executable
_JSON_LOAD = "import json, sys; json.load(open(sys.argv[1]))"
_DEPENDENCIES = (
    "import click, google.protobuf.message, msgspec, numpy, pyarrow.compute; "
    "import rich.console, rich.table"
)
_FEW_EVENTS = 500_000
_BYTES_PER_EVENT = """
import dataclasses, sys
from pathlib import Path
from neuron_tb.converters.readers import read_file
trace = read_file(Path(sys.argv[1]))
tables = (trace.slices, trace.instants, trace.counters, trace.memory, trace.flows)
columns = [getattr(table, f.name) for table in tables for f in dataclasses.fields(table)]
rows = sum(map(len, tables))
size = sum(column.nbytes for column in columns) / rows
print(size)
sys.exit(size > 100)
"""

Command = Sequence[str | Path]


@dataclass(frozen=True, slots=True)
class Line:
    """One line of the table.

    ``ratio`` and ``cpu_ratio``: elapsed and processor time over the baseline's; ``memory_ratio``:
    peak anonymous memory over the file's size. The bars are None where a number is only shown;
    ``judged``: whether a missed bar is a failure.
    """

    what: str
    measured: Measured | None = None
    ratio: float | None = None
    cpu_ratio: float | None = None
    bar: float | None = None
    rate: float | None = None
    memory_ratio: float | None = None
    memory_bar: float | None = None
    judged: bool = True
    note: str = ""
    ends_section: bool = False

    def cells(self) -> list[str]:
        """The line's numbers as they are shown."""
        m = self.measured
        return [
            self.note or _shown(m.wall_s if m else None),
            _shown(m.cpu_s if m else None),
            _shown(self.ratio),
            _shown(self.cpu_ratio),
            _shown(self.bar, "<= {:g}"),
            _shown(self.rate, "{:,.0f}"),
            _shown(m.peak_bytes / 1e6 if m else None, "{:,.0f} MB"),
            _shown(self.memory_ratio),
            _shown(self.memory_bar, "<= {:g}"),
        ]

    def exceeds(self, times: float) -> bool:
        """Whether a number is more than this many times its bar.

        Of elapsed and processor time the better one counts: what else the machine does lengthens
        the one, and work in two processes the other.
        """
        ratios = [r for r in (self.ratio, self.cpu_ratio) if r is not None]
        if not self.judged:
            return False
        slow = bool(ratios) and self.bar is not None and min(ratios) > times * self.bar
        memory, bar = self.memory_ratio, self.memory_bar
        return slow or (memory is not None and bar is not None and memory > times * bar)


class Bench:
    """Makes the files in a folder and measures."""

    def __init__(self, folder: Path, events: int, runs: int, say: Callable[[str], None]) -> None:
        self.events, self.runs = events, runs
        self._folder, self._say = folder, say
        say(f"writing files of {events:,} events to {folder}")
        self._trace = generate.kineto(folder / "trace.json", events)
        self._packed = folder / "packed" / "trace.json.gz"
        self._system = folder / "system.json"
        self.file_bytes = self._trace.stat().st_size
        self._load: Measured | None = None
        # With few events starting Python is much of the time and memory: it is taken off then.
        self._own = self._bare = Measured(0, 0, 0)
        if events < _FEW_EVENTS:
            self._own = run(self._conversion("perfetto", _small_capture())())
            self._bare = run((_PYTHON, "-c", "pass"))

    def lines(self) -> Iterator[Line]:
        """The lines that have bars."""
        generate.kineto(self._packed, self.events)
        directory = generate.system_parquet(self._folder / "tables", self.events)
        names = ("perfetto", "xprof", "torch-tb", "kineto", "all")
        commands = [self._conversion(name, self._trace) for name in names]
        commands.append(lambda: _neuron_tb("summary", self._trace))
        commands.append(self._conversion("perfetto", directory))
        commands.append(self._conversion("perfetto", self._packed))
        found = self._timed("json.load and neuron_tb", self._json_load, *commands)
        self._load, *measured = found
        yield Line("json.load (baseline)", self._load, 1.0, 1.0, ends_section=True)
        bars = (0.8, 0.8, 1.5, 1.5, 2.5)
        # Of few events, what is in memory is a chunk and its output, whatever the file's size.
        memory = 1.5 if self.events >= _FEW_EVENTS else None
        for name, bar, m in zip(names, bars, measured, strict=False):
            yield self._line(f"trace.json to {name}", m, bar, memory)
        yield self._line("summary", measured[5], 0.5)
        tables = self._line("system tables (Parquet) to perfetto", measured[6], 0.4)
        yield replace(tables, judged=False)  # known to be over its bar
        yield self._more("trace.json.gz to perfetto: more than plain", measured[7], measured[0])
        yield self._columns()
        yield from self._small()

    def others(self) -> Iterator[Line]:
        """What other programs need for the same file, one run each; no bars."""
        out = self._folder / "all"
        plugin = next(out.glob("**/*.pt.trace.json.gz"))
        xplane = next(out.glob("**/*.xplane.pb"))
        for what, name, path in (
            ("orjson.loads", "orjson", self._trace),
            ("HTA's parser", "hta", self._trace),
            ("Perfetto's builders, without arguments", "perfetto", self._trace),
            ("PyTorch plugin opens the file itself", "torch_tb", self._trace),
            ("PyTorch plugin opens neuron_tb's file", "torch_tb", plugin),
            ("XProf's first opening of neuron_tb's file", "xprof", xplane),
        ):
            self._say(f"measuring: {what}")
            try:
                yield self._line(what, run((_PYTHON, "-m", "benchmarks.others", name, path)))
            except CommandError as error:
                lines = str(error).strip().splitlines()
                yield Line(what, note=lines[-1][:40] if lines else "failed")
        generate.system_json(self._system, self.events)
        system = run(self._conversion("perfetto", self._system)())
        yield self._line("system_profile.json to perfetto", system)

    def large(self) -> Iterator[Line]:
        """Ten times the events: time must grow with the file, memory stay below it."""
        path = generate.kineto(self._folder / "large" / "trace.json", 10 * self.events)
        small, large = self._timed(
            "ten times the events",
            self._conversion("perfetto", self._trace),
            self._conversion("perfetto", path),
            runs=1,
        )
        yield Line(
            "ten times the events, against one time",
            large,
            large.wall_s / small.wall_s,
            large.cpu_s / small.cpu_s,
            11,
            10 * self.events / large.wall_s,
            large.peak_bytes / path.stat().st_size,
            1.2,
        )

    def _timed(
        self, what: str, *commands: Callable[[], Command], runs: int | None = None
    ) -> list[Measured]:
        self._say(f"measuring: {what}")
        return repeated(runs or self.runs, *commands)

    def _json_load(self) -> Command:
        return _PYTHON, "-c", _JSON_LOAD, self._trace

    def _conversion(self, target: str, source: Path) -> Callable[[], Command]:
        """A conversion into a folder of its own, made anew for every run."""
        kind = "" if source == self._trace else f"-{source.parent.name}-{source.name}"
        out = self._folder / f"{target}{kind}"

        def command() -> Command:
            shutil.rmtree(out, ignore_errors=True)
            return _neuron_tb("convert", source, "--to", target, "-o", out)

        return command

    def _line(
        self, what: str, m: Measured, bar: float | None = None, memory_bar: float | None = None
    ) -> Line:
        assert self._load is not None
        load, bare, own = self._load, self._bare, self._own
        return Line(
            what,
            m,
            (m.wall_s - own.wall_s) / (load.wall_s - bare.wall_s),
            (m.cpu_s - own.cpu_s) / (load.cpu_s - bare.cpu_s),
            bar,
            self.events / m.wall_s,
            (m.peak_bytes - own.peak_bytes) / self.file_bytes,
            memory_bar,
        )

    def _more(self, what: str, m: Measured, plain: Measured) -> Line:
        assert self._load is not None
        wall, cpu = max(m.wall_s - plain.wall_s, 0), max(m.cpu_s - plain.cpu_s, 0)
        more = Measured(wall, cpu, m.peak_bytes)
        return Line(
            what,
            more,
            wall / self._load.wall_s,
            cpu / self._load.cpu_s,
            0.6,
            memory_ratio=(m.peak_bytes - self._own.peak_bytes) / self.file_bytes,
            memory_bar=1.5 if self.events >= _FEW_EVENTS else None,
        )

    def _columns(self) -> Line:
        """Fails when the columns of an event take more than 100 bytes."""
        try:
            run((_PYTHON, "-c", _BYTES_PER_EVENT, self._trace))
        except CommandError as error:
            return Line(f"columns: over 100 bytes an event ({error})", ratio=9, bar=1)
        return Line("columns: at most 100 bytes an event", note="yes")

    def _small(self) -> Iterator[Line]:
        """A small capture, where starting Python is most of the time."""
        runs = max(self.runs, 5)
        bare, imports, help_text, small = self._timed(
            "starting",
            lambda: (_PYTHON, "-c", "pass"),
            lambda: (_PYTHON, "-c", _DEPENDENCIES),
            lambda: _neuron_tb("--help"),
            self._conversion("all", _small_capture()),
            runs=runs,
        )
        yield _against(imports, "small capture to all, against imports alone", small, 2.5)
        yield _against(bare, "neuron-tb --help, against bare Python", help_text, 3)


def _small_capture() -> Path:
    from neuron_tb import samples

    return Path(samples.__path__[0]) / "rmsnorm" / "rms_norm"


def _neuron_tb(*arguments: str | Path) -> Command:
    return _PYTHON, "-m", "neuron_tb", *arguments


def _against(baseline: Measured, what: str, m: Measured, bar: float) -> Line:
    return Line(what, m, m.wall_s / baseline.wall_s, m.cpu_s / baseline.cpu_s, bar)


def _shown(number: float | None, form: str = "{:.2f}") -> str:
    return "" if number is None else form.format(number)
