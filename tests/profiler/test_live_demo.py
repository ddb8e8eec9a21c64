"""``neuron-tb demo --live`` where it cannot work; test_packaging.py runs it from a wheel."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.profiler.running import ROOT

pytest.importorskip("torch", reason="with and without torch")

WITHOUT_TORCH = """
import importlib.util
found = importlib.util.find_spec
importlib.util.find_spec = lambda name, *more: None if name == "torch" else found(name, *more)
"""
COMMAND = """
import sys
from neuron_tb.__main__ import main
sys.exit(main())
"""


@pytest.mark.parametrize(
    ("missing", "before"), [("compiled with g++", ""), ("needs torch", WITHOUT_TORCH)]
)
def test_what_is_missing_is_said_in_a_sentence(tmp_path, missing, before):
    done = subprocess.run(
        [sys.executable, "-c", before + COMMAND, "demo", "--live", "--no-open", "out"],
        cwd=tmp_path,
        env={
            **os.environ,
            "PYTHONPATH": str(ROOT),
            "PATH": str(tmp_path),
            "CXX": "",
            "TORCH_EXTENSIONS_DIR": str(tmp_path),
        },
        capture_output=True,
        text=True,
    )
    assert done.returncode == 1
    (line,) = done.stderr.strip().splitlines()
    assert missing in line
    assert "`neuron-tb demo` needs none of them" in line
    assert not (tmp_path / "out").exists()
