"""AWS Trainium profiles in TensorBoard and Perfetto.

>>> import neuron_tb
>>> trace = neuron_tb.load("captures/")
>>> neuron_tb.summarize(trace).to_pandas()
>>> neuron_tb.convert("captures/", out="logs/")

Nothing heavy is imported until a name is used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from neuron_tb.analysis.comparison import Comparison, compare
    from neuron_tb.analysis.roofline import Roofline, roofline
    from neuron_tb.analysis.summary import Summary, summarize
    from neuron_tb.converters.convert import Conversion, convert
    from neuron_tb.converters.errors import NeuronTbError
    from neuron_tb.converters.load import load
    from neuron_tb.converters.model import Trace
    from neuron_tb.profiler.patches import disable, enable, enabled

__all__ = [
    "Comparison",
    "Conversion",
    "NeuronTbError",
    "Roofline",
    "Summary",
    "Trace",
    "__version__",
    "compare",
    "convert",
    "disable",
    "enable",
    "enabled",
    "load",
    "roofline",
    "summarize",
]

_HOMES = {
    "Comparison": "neuron_tb.analysis.comparison",
    "Conversion": "neuron_tb.converters.convert",
    "NeuronTbError": "neuron_tb.converters.errors",
    "Roofline": "neuron_tb.analysis.roofline",
    "Summary": "neuron_tb.analysis.summary",
    "Trace": "neuron_tb.converters.model.trace",
    "compare": "neuron_tb.analysis.comparison",
    "convert": "neuron_tb.converters.convert",
    "disable": "neuron_tb.profiler.patches",
    "enable": "neuron_tb.profiler.patches",
    "enabled": "neuron_tb.profiler.patches",
    "load": "neuron_tb.converters.load",
    "roofline": "neuron_tb.analysis.roofline",
    "summarize": "neuron_tb.analysis.summary",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
