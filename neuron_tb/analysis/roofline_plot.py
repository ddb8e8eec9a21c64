"""Drawing a roofline with matplotlib (extra ``plot``)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from neuron_tb.analysis.roofline import Profile, Roofline
from neuron_tb.converters.errors import NeuronTbError
from neuron_tb.converters.storage.output import replacing_file

if TYPE_CHECKING:
    from matplotlib.axes import Axes

ENDINGS = (".png", ".svg", ".pdf")
_NEEDED = ("arithmetic_intensity", "achieved_flops", "peak_flops", "hbm_bandwidth")
_ROOF = "0.25"


def plot(roofline: Roofline, path: Path) -> list[str]:
    """Draw every profile whose figures are known; returns the names of those that are not drawn.

    The axes are logarithmic: FLOPs per HBM byte, and FLOP/s. Raises NeuronTbError when nothing
    can be drawn, when matplotlib is missing, and for a file type that it is not asked for here.
    """
    if path.suffix.lower() not in ENDINGS:
        raise NeuronTbError(f"{path} must end in {', '.join(ENDINGS[:-1])} or {ENDINGS[-1]}.")
    drawn = [p for p in roofline.profiles if all((p.value(key) or 0) > 0 for key in _NEEDED)]
    if not drawn:
        raise NeuronTbError(f"no roofline can be drawn: {_why_not(roofline.profiles)}.")
    try:
        from matplotlib import rc_context
        from matplotlib.figure import Figure
    except ImportError as error:
        raise NeuronTbError('drawing needs matplotlib: pip install "neuron-tb[plot]".') from error
    # Fixed identifiers: the same figures give the same file.
    with rc_context({"svg.hashsalt": "neuron_tb"}):
        figure = Figure(figsize=(8, 5.5), layout="constrained")
        axes = figure.add_subplot()
        _draw(axes, drawn)
        kind = path.suffix.lower().removeprefix(".")
        metadata = {"png": {"Software": None}, "svg": {"Date": None}, "pdf": {"CreationDate": None}}
        with replacing_file(path) as file:
            figure.savefig(file, format=kind, dpi=150, metadata=metadata[kind])
    names = {profile.name for profile in drawn}
    return [p.name for p in roofline.profiles if p.name not in names]


def _draw(axes: Axes, profiles: Sequence[Profile]) -> None:
    low, high = _range(profiles)
    for peak, bandwidth in _roofs(profiles):
        ridge = peak / bandwidth
        axes.plot(
            [low, ridge, high], [low * bandwidth, peak, peak], color=_ROOF, linewidth=1.5, zorder=1
        )
        axes.plot([ridge, ridge], [0, peak], color=_ROOF, linewidth=0.8, linestyle=":", zorder=1)
        axes.annotate(
            f"{peak / 1e12:,.3g} TFLOP/s", (high, peak), ha="right", va="bottom", color=_ROOF
        )
        axes.annotate(
            f"{bandwidth / 1e9:,.4g} GB/s",
            (low, low * bandwidth),
            xytext=(16, 4),
            textcoords="offset points",
            color=_ROOF,
        )
        axes.annotate(
            f"ridge {ridge:,.4g} FLOP/B",
            (ridge, peak),
            xytext=(5, -12),
            textcoords="offset points",
            fontsize="small",
            color=_ROOF,
        )
    for profile in profiles:
        at, done = (profile.value(key) or 0.0 for key in _NEEDED[:2])
        share = 100 * done / (profile.value("attainable_flops") or done)
        label = f"{profile.name}: {profile.verdict}, {share:.1f} % of attainable"
        axes.scatter([at], [done], zorder=2, label=label)
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlim(low, high)
    axes.set_xlabel("Arithmetic intensity (FLOP per HBM byte)")
    axes.set_ylabel("FLOP/s of the Tensor engine, without transposes")
    axes.figure.legend(loc="outside lower center", fontsize="small")
    sources = {profile.figures["peak_flops"].source or "" for profile in profiles}
    axes.set_title(f"Roofline (peak: {'; '.join(sorted(sources))})", fontsize="small", wrap=True)


def _roofs(profiles: Sequence[Profile]) -> list[tuple[float, float]]:
    return sorted({(p.value("peak_flops") or 0, p.value("hbm_bandwidth") or 0) for p in profiles})


def _range(profiles: Sequence[Profile]) -> tuple[float, float]:
    at = [p.value(key) or 1.0 for p in profiles for key in ("arithmetic_intensity", "ridge_point")]
    return min(at) / 10, max(at) * 10


def _why_not(profiles: Sequence[Profile]) -> str:
    for profile in profiles:
        for key in _NEEDED:
            figure = profile.figures[key]
            if figure.value is None:
                return f"{figure.title.lower()} of {profile.name} is not known ({figure.reason})"
            if figure.value <= 0:
                return f"{figure.title.lower()} of {profile.name} is {figure.value:g}"
    return "there is no profile"
