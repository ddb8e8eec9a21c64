"""Fuzzing of every reader, for as many seconds each as NEURON_TB_FUZZ says (10)."""

from __future__ import annotations

import gzip
import os
import random
import subprocess
import sys
import time
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, seed, settings
from hypothesis import strategies as st

import neuron_tb
from neuron_tb.converters.readers import FORMATS
from tests.fuzz import grammar, target
from tests.fuzz.seeds import SEEDS, Seed

_SECONDS = float(os.environ.get("NEURON_TB_FUZZ", "10"))
_FIRST = random.SystemRandom().randrange(1 << 32) if "NEURON_TB_FUZZ" in os.environ else 0
_ROUND = settings(
    max_examples=100, deadline=None, database=None, suppress_health_check=list(HealthCheck)
)
_JSON = {
    "kineto_json": st.one_of(
        grammar.damaged_texts(grammar.documents("traceEvents", grammar.CHROME_EVENTS)),
        grammar.damaged_texts(grammar.documents("", grammar.CHROME_EVENTS)),
    ),
    "system_profile": grammar.damaged_texts(
        grammar.documents("trace_events", grammar.PROFILE_ROWS)
    ),
    "nrt_events": grammar.damaged_texts(grammar.documents("events", grammar.RUNTIME_EVENTS)),
}
"""Texts made by a grammar, for readers of JSON."""

pytestmark = pytest.mark.slow


def _for_a_while(check: Callable[[Seed], None], inputs: st.SearchStrategy[Seed]) -> None:
    """Rounds of examples until the time is over; what fails is shrunk and shown."""
    end = time.monotonic() + _SECONDS
    number = _FIRST
    while time.monotonic() < end:
        seed(number)(_ROUND(given(inputs)(check)))()
        number += 1


def _inputs(reader: str) -> st.SearchStrategy[Seed]:
    seeds = st.sampled_from(SEEDS[reader]())
    damaged = seeds.flatmap(
        lambda one: grammar.damaged_bytes(one.data).map(lambda data: Seed(one.name, data))
    )
    if reader not in _JSON:
        return damaged
    name = SEEDS[reader]()[0].name
    return st.one_of(_JSON[reader].map(lambda data: Seed(name, data)), damaged)


def _read(one: Seed) -> None:
    target.read(one.data, one.name)


def test_every_reader_has_seeds() -> None:
    assert {known.module for known in FORMATS} <= SEEDS.keys()


@pytest.mark.parametrize("reader", SEEDS)
def test_seeds_are_sound(tmp_path: Path, reader: str) -> None:
    rows = 0
    for number, one in enumerate(SEEDS[reader]()):
        path = tmp_path / str(number) / one.name
        path.parent.mkdir()
        path.write_bytes(one.data)
        trace = neuron_tb.load(path)
        rows += len(trace.slices)
        assert trace.findings.of_kind("bytes_lost") == 0
    assert rows


@pytest.mark.parametrize("reader", SEEDS)
def test_readers_keep_their_promises(reader: str) -> None:
    _for_a_while(_read, _inputs(reader))


@pytest.mark.parametrize("reader", SEEDS)
@pytest.mark.skipif(find_spec("atheris") is None, reason="atheris is not installed")
def test_readers_keep_their_promises_under_guidance(tmp_path: Path, reader: str) -> None:
    # The target has a watch of its own, in processor time; atheris counts a busy machine too.
    options = [f"-max_total_time={_SECONDS:.0f}", f"-artifact_prefix={tmp_path}/", "-timeout=300"]
    run = subprocess.run(
        [sys.executable, "-m", "tests.fuzz.atheris_readers", reader, *options, "-max_len=20000"],
        capture_output=True,
        text=True,
        timeout=4 * _SECONDS + 120,
    )
    found = [path.read_bytes() for path in tmp_path.iterdir()]
    assert run.returncode == 0, f"{found}\n{run.stderr[-4000:]}"


@settings(_ROUND, max_examples=300)
@given(st.one_of(st.binary(max_size=300), st.text(max_size=300).map(str.encode)))
@example(b"\xff\xfe{")
@example(b"\0[")
@example(b"")
def test_any_bytes(data: bytes) -> None:
    target.read(data)


@settings(_ROUND, max_examples=300)
@given(st.binary(max_size=2000), st.integers(0, 2000), st.binary(max_size=8), st.integers(0, 3))
def test_damaged_gzip(content: bytes, at: int, junk: bytes, cut: int) -> None:
    packed = bytearray(gzip.compress(b'[{"ph":"X","ts":1,"dur":1,"name":"a"},' + content))
    packed[at : at + len(junk)] = junk
    target.read(bytes(packed[: len(packed) * (4 - cut) // 4]), "trace.json.gz")
