"""``neuron-tb roofline``: what bounds a program, and how much of the hardware it used."""

from __future__ import annotations

import re
from pathlib import Path

import click

from neuron_tb.analysis.roofline import Profile, roofline
from neuron_tb.analysis.roofline_figures import Figure
from neuron_tb.commands.common import (
    LOCAL,
    SOURCE,
    command_options,
    format_option,
    instance_option,
    number,
    print_findings,
    print_json,
    print_table,
    shortened,
)
from neuron_tb.converters.findings import Findings

_PREFIXES = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))


@click.command("roofline")
@click.argument("sources", nargs=-1, required=True, type=SOURCE)
@instance_option
@click.option(
    "--physical-cores",
    type=click.IntRange(1, 2),
    help="How many Tensor engines the peak is of, when the profile does not settle it.",
)
@click.option("--plot", "picture", type=LOCAL, help="Draw it, as FILE.png, .svg or .pdf.")
@format_option
@command_options
def command(
    sources: tuple[Path, ...],
    instance_type: str | None,
    physical_cores: int | None,
    picture: Path | None,
    output_format: str,
) -> Findings:
    """Print FLOPs, bytes, utilisation and what bounds a program.

    SOURCES are device profiles: directories of Neuron Explorer's tables, device_profile JSON, or
    summary-json, or captures that hold them. `-` means that a figure is not known, and why.
    """
    found = roofline(*sources, instance_type=instance_type, physical_cores=physical_cores)
    if picture is not None:
        from neuron_tb.analysis.roofline_plot import plot

        for name in plot(found, picture):
            click.echo(f"Not drawn, because a figure is not known: {name}", err=True)
    if output_format == "json":
        print_json(found.as_dict())
        return found.findings
    for profile in found.profiles:
        _print(profile)
    if picture is not None:
        click.echo(f"Drawn: {picture}")
    print_findings(found.findings)
    return found.findings


def _print(profile: Profile) -> None:
    rows = [
        (figure.title, _value(figure), _origin(figure, profile))
        for figure in profile.figures.values()
    ]
    core = "" if profile.core is None else f", NeuronCore {profile.core}"
    print_table(
        f"{profile.name}{core}",
        [("Figure", "left"), ("Value", "right"), ("From", "left")],
        rows,
    )
    if profile.busy:
        print_table(
            None,
            [("Busy", "left"), ("us", "right"), ("% of time", "right")],
            [
                (name, number(seconds * 1e6), number(100 * share))
                for name, (seconds, share) in profile.busy.items()
            ],
        )
    click.echo(f"{profile.verdict or 'Not known what bounds it'}: {profile.reason}.\n")


def _value(figure: Figure) -> str:
    if figure.value is None:
        return "-"
    if figure.unit == "%":
        return f"{figure.value:.2f} %"
    if figure.unit == "s":
        return f"{figure.value * 1e6:,.1f} us"
    for size, prefix in _PREFIXES:
        if abs(figure.value) >= size:
            # FLOP/B are ratios: they read better without a prefix.
            if figure.unit == "FLOP/B":
                break
            return f"{figure.value / size:,.3f} {prefix}{figure.unit}"
    return f"{figure.value:,.2f} {figure.unit}"


def _origin(figure: Figure, profile: Profile) -> str:
    """The formula, and the same with its inputs; or the reason why it is not known."""
    if figure.value is None:
        return shortened(figure.reason or "", 160)
    text = figure.formula
    if figure.inputs:

        def shown(match: re.Match[str]) -> str:
            own = profile.figures.get(match[0])
            return _value(own) if own else f"{figure.inputs[match[0]]:.6g}"

        names = "|".join(sorted(map(re.escape, figure.inputs), key=len, reverse=True))
        text += " = " + re.sub(rf"\b({names})\b", shown, text)
    return f"{text}; {figure.source}" if figure.source else text
