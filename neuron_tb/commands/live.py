"""``neuron-tb demo --live``: a training script profiled on a simulated Neuron device."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import click

import neuron_tb.samples.live
from neuron_tb.commands.common import Stages, print_findings
from neuron_tb.converters.convert import TARGETS, convert
from neuron_tb.converters.errors import NeuronTbError
from neuron_tb.converters.findings import Findings

RUN = "simulated-training"
_RECORDED = "live-recorded"
_SCRIPT = Path(neuron_tb.samples.live.__file__).with_name("train.py")
_NOTE = (
    "Simulated: the training runs on this machine's CPU, and a simulated Neuron device keeps the "
    "time. Operators, launches and the profiler are real; device times are settings, not "
    "measurements."
)


def live(directory: Path) -> Findings:
    """Train, profile and convert into ``directory``. Raises NeuronTbError where that cannot be."""
    # Its package compiles at the first use, and imports torch.
    from neuron_tb.simulation.device import build, sim

    reason = sim.missing()
    if reason:
        raise NeuronTbError(
            f"{reason}. `neuron-tb demo --live` needs Linux, g++ and PyTorch "
            '(pip install "neuron-tb[torch]"); `neuron-tb demo` needs none of them.'
        )
    click.echo(f"{_NOTE}\n")
    try:
        with Stages() as stages:
            if not build.is_built():
                stages("compiling the simulated device (about 20 s, once)")
            build.load()
    except (RuntimeError, ImportError, OSError) as error:
        raise NeuronTbError(f"the simulated device cannot be used: {error}") from error
    recorded = directory / _RECORDED
    before = set(recorded.glob("*.pt.trace.json"))
    click.echo(f"$ neuron-tb run {_SCRIPT.name} {recorded} neuron   # a script written for a GPU")
    # Windows in the trace and times in the runtime's files, as TorchNeuron records them.
    click.echo(_trained(recorded, sim.environment(mode="driver")) + "\n")
    new = sorted(set(recorded.glob("*.pt.trace.json")) - before)
    if not new:
        raise NeuronTbError(f"the training wrote no trace into {recorded}.")
    with Stages() as stages:
        conversion = convert(new[-1], out=directory, run=RUN, force=True, progress=stages)
    for name, target in TARGETS.items():
        click.echo(f"  {name:<9} {target.path(directory, RUN)}  for {target.viewer} (simulated)")
    print_findings(conversion.findings)
    return conversion.findings


def _trained(recorded: Path, simulated: dict[str, str]) -> str:
    """What the script prints, run as a user would run it."""
    environment = {**os.environ, **simulated}
    # The package itself, where it is not installed but run from its source tree.
    package = str(Path(neuron_tb.__file__).resolve().parents[1])
    environment["PYTHONPATH"] = os.pathsep.join([environment["PYTHONPATH"], package])
    command = [sys.executable, "-m", "neuron_tb", "run", "--quiet", _SCRIPT, recorded, "neuron"]
    done = subprocess.run(
        [*map(str, command)], env=environment, capture_output=True, text=True, check=False
    )
    if done.returncode:
        lines = done.stderr.strip().splitlines()
        raise NeuronTbError(f"the training failed: {lines[-1] if lines else done.returncode}")
    return done.stdout.rstrip()
