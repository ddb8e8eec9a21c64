"""Runs a script on the simulated Neuron, in a process of its own."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest

_FOUND = importlib.util.find_spec("torch")
TORCH = tuple(int(part) for part in version("torch").split(".")[:2]) if _FOUND else (0, 0)
"""torch's version: (2, 13)."""
CUDA_BUILD = (
    bool(_FOUND) and Path(str(_FOUND.origin)).with_name("lib").joinpath("libtorch_cuda.so").exists()
)
ROOT = Path(__file__).resolve().parents[2]
SCRIPTS = Path(__file__).resolve().parent / "scripts"


@dataclass
class Ran:
    code: int
    out: str
    err: str

    @property
    def result(self) -> Any:
        """The JSON of the last line that the script printed."""
        assert self.code == 0, self.err
        return json.loads(self.out.strip().splitlines()[-1])


def on_neuron(
    script: str,
    *arguments: object,
    place: Path,
    run: tuple[str, ...] = (),
    env: dict[str, str] | None = None,
    neuron_tb: str | None = None,
    torch_neuronx: bool = True,
    seconds: float = 240,
    **settings: Any,
) -> Ran:
    """Run ``scripts/SCRIPT`` in ``place``. ``neuron_tb``: the variable's value; ``run``: what
    stands between Python and the script, such as ``("-m", "neuron_tb", "run")``."""
    pytest.importorskip("torch", reason="the profiler needs torch")
    from neuron_tb.simulation.device import sim

    reason = sim.missing()
    if reason:
        pytest.skip(reason)
    environment = {**os.environ, **sim.environment(torch_neuronx=torch_neuronx, **settings)}
    return _run(
        [*run, str(SCRIPTS / script)], arguments, environment, place, neuron_tb, env, seconds
    )


def on_cpu(
    script: str,
    *arguments: object,
    place: Path,
    run: tuple[str, ...] = (),
    env: dict[str, str] | None = None,
    neuron_tb: str | None = None,
    seconds: float = 240,
) -> Ran:
    """Run ``scripts/SCRIPT`` on plain torch."""
    pytest.importorskip("torch", reason="the profiler needs torch")
    command = [*run, str(SCRIPTS / script)]
    return _run(command, arguments, dict(os.environ), place, neuron_tb, env, seconds)


def _run(
    command: list[str],
    arguments: tuple[object, ...],
    environment: dict[str, str],
    place: Path,
    neuron_tb: str | None,
    env: dict[str, str] | None,
    seconds: float,
) -> Ran:
    paths = [
        str(_installed(place)),
        str(ROOT),
        *environment.get("PYTHONPATH", "").split(os.pathsep),
    ]
    environment["PYTHONPATH"] = os.pathsep.join(p for p in paths if p)
    environment.pop("NEURON_TB", None)
    if neuron_tb is not None:
        environment["NEURON_TB"] = neuron_tb
    environment.update(env or {})
    done = subprocess.run(
        [sys.executable, *command, *map(str, arguments)],
        cwd=place,
        env=environment,
        capture_output=True,
        text=True,
        timeout=seconds,
    )
    return Ran(done.returncode, done.stdout, done.stderr)


def _installed(place: Path) -> Path:
    """A directory that makes the source tree look installed, with its entry point for torch."""
    site = place / "site"
    info = site / "neuron_tb_tree-0.dist-info"
    info.mkdir(parents=True, exist_ok=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: neuron-tb-tree\nVersion: 0\n")
    (info / "entry_points.txt").write_text(
        "[torch.backends]\nneuron_tb = neuron_tb._autoload:autoload\n"
    )
    return site
