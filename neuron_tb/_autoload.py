"""Called by torch at the end of ``import torch``, in every process (entry point torch.backends).

An exception here would break ``import torch`` for everyone. So this module imports the standard
library only, returns at once when nobody asked for it, and turns whatever goes wrong into one line.
"""

from __future__ import annotations

import os
import sys

_called = False
"""An installation beside a source tree registers the entry point twice."""


def autoload() -> None:
    """Turn the drop-in on when the environment variable ``NEURON_TB`` says so."""
    global _called
    wanted = os.environ.get("NEURON_TB")
    if not wanted or _called:
        return
    _called = True
    try:
        from neuron_tb.profiler.options import of_text

        options = of_text(wanted)
        if options is not None:
            from neuron_tb.profiler.patches import switch_on

            switch_on(options)
    except Exception as error:
        reason = f"{type(error).__name__}: {error}"
        sys.stderr.write(f"neuron_tb: NEURON_TB={wanted} has no effect ({reason})\n")
