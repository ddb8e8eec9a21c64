"""``neuron-tb run``: the user's program must not notice who started it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

from tests.profiler.running import ROOT

pytest.importorskip("torch", reason="the drop-in is for torch")

TELLS = """
import atexit, json, os, pickle, sys
import beside
class Own: pass
def main():
    spec = __spec__ and __spec__.name
    told = [sys.argv, __name__, __file__, spec, sys.path[0], beside.here]
    told.append(pickle.loads(pickle.dumps(Own())).__class__ is Own)
    told.append(sys.modules["__main__"].Own is Own)
    print(json.dumps(told))
atexit.register(lambda: print("left with", Own.__name__))
if __name__ == "__main__":
    main()
"""

ENDS = {
    "error": "def inner():\n    raise ValueError('bad \\n news')\ninner()\n",
    "syntax": "x = 1\nif x\n    pass\n",
    "message": "import sys; sys.exit('no such data')\n",
    "hook": "import sys; sys.excepthook = lambda *e: print(e[0].__name__); 1 / 0\n",
    "interrupt": "import os, signal\nos.kill(os.getpid(), signal.SIGINT)\n",
    "click": "import click\nraise click.ClickException('not ours')\n",
}


def started(place, *command, ours=True):
    """The program under plain Python, or under ``neuron-tb run``."""
    before = ["-m", "neuron_tb", "run", "--quiet"] if ours else []
    return subprocess.run(
        [sys.executable, *before, *command],
        cwd=place,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
    )


@pytest.mark.parametrize("command", [("sub/tells.py", "--device", "x"), ("-m", "sub.tells", "-v")])
def test_a_program_finds_itself_as_under_python(tmp_path, command):
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "tells.py").write_text(TELLS)
    for folder in (tmp_path, tmp_path / "sub"):
        (folder / "beside.py").write_text(f"here = {str(folder)!r}\n")
    plain, ours = (started(tmp_path, *command, ours=ours) for ours in (False, True))
    assert plain.returncode == 0, plain.stderr
    assert (ours.stdout, ours.returncode) == (plain.stdout, 0), ours.stderr
    assert "left with Own" in ours.stdout


@pytest.mark.parametrize("name", ENDS)
def test_a_program_ends_as_under_python(tmp_path, name):
    (tmp_path / "ends.py").write_text(ENDS[name])
    plain, ours = (started(tmp_path, "ends.py", ours=ours) for ours in (False, True))
    assert plain.returncode != 0
    assert (ours.returncode, ours.stdout, ours.stderr) == (
        plain.returncode,
        plain.stdout,
        plain.stderr,
    )
    if name == "interrupt":
        assert ours.returncode == -signal.SIGINT


def test_a_module_that_fails_shows_what_python_shows(tmp_path):
    (tmp_path / "ends.py").write_text(ENDS["error"])
    plain, ours = (started(tmp_path, "-m", "ends", ours=ours) for ours in (False, True))
    assert (ours.returncode, ours.stderr) == (plain.returncode, plain.stderr)


def test_a_program_that_is_no_script_is_pointed_to_the_variable(tmp_path):
    done = started(tmp_path, "--device", "always", "torchrun", "train.py")
    assert done.returncode == 2
    assert "set NEURON_TB=device=always,quiet=1 in the environment" in done.stderr
    assert "Traceback" not in done.stderr
