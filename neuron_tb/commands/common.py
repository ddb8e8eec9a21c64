"""What the sub-commands share: options, errors, findings, progress, tables."""

from __future__ import annotations

import functools
import json
import re
import sys
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any, TypeVar

import click

from neuron_tb.converters.errors import NeuronTbError, WrongUseError
from neuron_tb.converters.findings import Finding

EXIT_UNREADABLE = 1
EXIT_WRONG_USE = 2
EXIT_FINDINGS = 3
EXIT_CHECK_FAILED = 4

_F = TypeVar("_F", bound=Callable[..., Any])

LOCAL = click.Path(path_type=Path, readable=False)
"""A path on this machine."""


class _Place(click.ParamType):  # type: ignore[type-arg]
    """A path, or a URL such as s3://bucket/folder, which stays a text."""

    name = "path"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> Path | str:
        """The path; a URL unchanged."""
        return value if "://" in str(value) else Path(value)


SOURCE = _Place()
"""What a command reads; ``command_options`` makes URLs local."""
DESTINATION = _Place()
"""Where a command writes; URLs are for ``convert`` and ``merge`` to handle."""

format_option = click.option(
    "--format",
    "output_format",
    type=click.Choice(["table", "json"]),
    default="table",
    show_default=True,
    help="A table for people, or JSON for programs.",
)
steps_option = click.option(
    "--steps-from",
    metavar="ANNOTATION",
    help="The annotation that marks steps, when it is not ProfilerStep#N.",
)
instance_option = click.option(
    "--instance-type",
    metavar="TYPE",
    help="The machine the capture is from, such as trn2.48xlarge; adds published peak figures.",
)

instructions_option = click.option(
    "--instructions",
    is_flag=True,
    help="Of device profiles, draw single instructions, DMA packets and semaphores too.",
)


_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}
_SIZE = re.compile(r"(\d{1,18}(?:\.\d{1,9})?)\s*([KMGT]?)(?:I?B)?", re.IGNORECASE)


class Size(click.ParamType):  # type: ignore[type-arg]
    """A number of bytes, such as 16G, 512MiB or 1000000."""

    name = "size"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> int | None:
        """The number of bytes (1K is 1024)."""
        match = _SIZE.fullmatch(str(value).strip())
        size = int(float(match[1]) * _UNITS[match[2].upper()]) if match else 0
        if not 0 < size < 1 << 63:
            self.fail(f"{value!r} is no size; write 16G, 512M or a number of bytes.", param, ctx)
        return size


def command_options(function: _F) -> _F:
    """Adds ``--strict``, ``--max-size`` and ``--debug``.

    NeuronTbError becomes a sentence and exit 1.
    """

    @click.option("--strict", is_flag=True, help="Exit with 3 when there are findings.")
    @click.option(
        "--max-size",
        type=Size(),
        metavar="SIZE",
        help="The largest file to read, decompressed (such as 16G); by default 8G, and 400 times "
        "the compressed size above 256M.",
    )
    @click.option("--debug", is_flag=True, help="Show a traceback when something fails.")
    @functools.wraps(function)
    def wrapped(*args: Any, strict: bool, max_size: int | None, debug: bool, **kwargs: Any) -> None:
        try:
            with _allowed(max_size):
                findings = function(*args, **_local(kwargs))
        except NeuronTbError as error:
            _fail(error, debug)
        except KeyboardInterrupt:
            click.echo("Stopped.", err=True)
            sys.exit(130)
        except BrokenPipeError:
            sys.exit(0)
        except (MemoryError, OSError) as error:
            _fail(error, debug)
        except Exception as error:
            if debug:
                raise
            click.echo(
                f"neuron-tb: internal error ({type(error).__name__}: {error}); the same command "
                "with --debug shows where. Please report it.",
                err=True,
            )
            sys.exit(EXIT_UNREADABLE)
        if strict and findings:
            sys.exit(EXIT_FINDINGS)

    return wrapped  # type: ignore[return-value]


def _local(arguments: dict[str, Any]) -> dict[str, Any]:
    """The arguments with a local copy for every URL among the sources."""
    sources = {p.name for p in click.get_current_context().command.params if p.type is SOURCE}
    return {
        name: _local_copy(value) if name in sources else value for name, value in arguments.items()
    }


def _local_copy(value: Any) -> Any:
    if isinstance(value, tuple):
        return tuple(map(_local_copy, value))
    if not isinstance(value, str):
        return value
    from neuron_tb.converters.captures.remote import local_source

    return local_source(value)


def _allowed(max_size: int | None) -> AbstractContextManager[None]:
    if max_size is None:
        return nullcontext()
    from neuron_tb.converters.readers.json.bounds import allowed

    return allowed(max_size)


def _fail(error: BaseException, debug: bool) -> None:
    if debug:
        raise error
    text = " ".join(_sentence(error).split()) or type(error).__name__
    click.echo(f"neuron-tb: {printable(text)}", err=True)
    sys.exit(EXIT_WRONG_USE if isinstance(error, WrongUseError) else EXIT_UNREADABLE)


def _sentence(error: BaseException) -> str:
    if isinstance(error, MemoryError):
        return "there is not enough memory for this; --time, --steps or --ranks take a part of it."
    if isinstance(error, OSError) and error.strerror:
        place = "" if error.filename is None else f"{error.filename}: "
        return f"{place}{error.strerror}."
    return str(error)


align_option = click.option(
    "--align",
    multiple=True,
    default=("auto",),
    metavar="auto|none|offset=NAME:NS",
    help="Where the clocks of a trace and its system profile differ: move the profile by what the "
    "evidence says (auto), leave times as they are (none), or add NS nanoseconds to the profile "
    "of a rank (rank0), an instance, or every profile (profile).",
)


def print_json(value: object) -> None:
    """One JSON document on standard output."""
    click.echo(json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False))


def print_findings(findings: Iterable[Finding]) -> None:
    """The findings on standard error, one line each."""
    rows = list(findings)
    if not rows:
        return
    click.echo("", err=True)
    click.echo(click.style("Findings", bold=True), err=True)
    for finding in rows:
        click.echo(f"  {finding.count:>7,} x {finding.kind}: {printable(str(finding))}", err=True)


def number(value: float | None, digits: int = 1) -> str:
    """A number with thousands separators; ``-`` when it is not known."""
    return "-" if value is None else f"{value:,.{digits}f}"


def printable(text: str) -> str:
    """A name from a trace for a terminal: control and direction characters become visible."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def shortened(text: str, length: int = 90) -> str:
    """A name for a table: C++ kernel names run to thousands of characters."""
    return text if len(text) <= length else text[: length - 1] + "…"


def print_table(
    title: str | None,
    columns: Iterable[tuple[str, str]],
    rows: Iterable[Iterable[str]],
    note: str = "",
) -> None:
    """A table on standard output; each column is (heading, "left" or "right").

    Without a terminal, lines are as wide as their content, so that nothing is cut in a pipe.
    """
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    title = None if title is None else printable(title)
    table = Table(title=title, title_justify="left", box=SIMPLE_HEAD, pad_edge=False)
    for heading, side in columns:
        table.add_column(heading, justify="right" if side == "right" else "left", overflow="fold")
    for row in rows:
        table.add_row(*(Text(printable(cell)) for cell in row))
    console = Console(highlight=False)
    if not console.is_terminal:
        console = Console(highlight=False, width=10_000, color_system=None)
    console.print(table)
    if note:
        click.echo(note)


class Stages:
    """Progress on long work: after a second on a terminal, the stage and the time so far.

    Use as a context manager; call it with the name of each stage.
    """

    _DELAY_SECONDS = 1.0

    def __init__(self) -> None:
        self._stage = ""
        self._status: Any = None
        self._begin = time.monotonic()
        self._timer: threading.Timer | None = None
        self._lock = threading.Lock()

    def __enter__(self) -> Stages:
        if sys.stderr.isatty():
            self._timer = threading.Timer(self._DELAY_SECONDS, self._show)
            self._timer.daemon = True
            self._timer.start()
        return self

    def __exit__(self, *error: object) -> None:
        if self._timer:
            self._timer.cancel()
        with self._lock:
            if self._status:
                self._status.stop()
                self._status = None

    def __call__(self, stage: str) -> None:
        """Name the stage that begins now."""
        with self._lock:
            self._stage = stage
            if self._status:
                self._status.update(0, description=stage)

    def _show(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

        with self._lock:
            self._status = Progress(
                SpinnerColumn(),
                TextColumn("{task.description}"),
                BarColumn(bar_width=24),
                TimeElapsedColumn(),
                console=Console(stderr=True),
                transient=True,
            )
            self._status.add_task(self._stage, total=None)
            self._status.start()
