"""The options that show a part of a capture."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeVar

import click

from neuron_tb.converters.selection.filters import Filters

_F = TypeVar("_F", bound=Callable[..., Any])


def filter_options(function: _F) -> _F:
    """Adds the options and hands the function one ``filters`` made of them.

    Stands below ``command_options``, which turns the errors of wrong values into sentences.
    """

    @click.option("--ranks", metavar="N,N-M", help="Only these ranks, such as 0,3-5.")
    @click.option("--cores", metavar="N,N-M", help="Only these logical cores of each process.")
    @click.option("--steps", metavar="A:B", help="Only steps A to B (both included): 2:5, 2:, 7.")
    @click.option(
        "--time",
        metavar="A:B",
        help="Only this range after the capture's first event, such as 10ms:20ms (ns, us, ms, s).",
    )
    @click.option(
        "--events",
        metavar="WORDS",
        help="Only these of Neuron's own events, in Neuron's filter words: names, hardware, "
        "software, all; ^ leaves out. Such as nrt_execute,hardware,^cc_running.",
    )
    @functools.wraps(function)
    def wrapped(
        *args: Any,
        ranks: str | None,
        cores: str | None,
        steps: str | None,
        time: str | None,
        events: str | None,
        **kwargs: Any,
    ) -> Any:
        return function(*args, filters=Filters.of(ranks, cores, steps, time, events), **kwargs)

    return wrapped  # type: ignore[return-value]


def print_filtered(sentence: str, name: str = "") -> None:
    """That a result is of a part of a capture, if it is."""
    if sentence:
        place = f" of {name}" if name else ""
        click.echo(f"Filtered{place} ({sentence}): totals are those of this part.")
