"""Fuzzing of every reader, for as many seconds each as NEURON_TB_FUZZ says.

Without it 10, and each time the same inputs: what is new is found by ``make fuzz``.
"""

from __future__ import annotations

import gzip
import os
import random
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, seed, settings
from hypothesis import strategies as st

import neuron_tb
from neuron_tb.converters.readers import FORMATS
from tests.fuzz import grammar, target
from tests.fuzz.seeds import RESULTS, SEEDS, Seed

_SECONDS = float(os.environ.get("NEURON_TB_FUZZ", "10"))
_FIRST = random.SystemRandom().randrange((1 << 32) - 1) if "NEURON_TB_FUZZ" in os.environ else 0
_HAS_ATHERIS = find_spec("atheris") is not None
_ROUND = settings(
    max_examples=100, deadline=None, database=None, suppress_health_check=list(HealthCheck)
)
_TEXTS = {
    "trace.json": st.one_of(
        grammar.documents("traceEvents", grammar.CHROME_EVENTS),
        grammar.documents("", grammar.CHROME_EVENTS),
    ),
    "system_profile.json": grammar.documents("trace_events", grammar.PROFILE_ROWS),
    "nrt_events.json": grammar.documents("events", grammar.RUNTIME_EVENTS),
    "r.json": grammar.RUN_LISTS,
    "w.pt.trace.neuron.json": grammar.WINDOW_MANIFESTS,
    "framework_mapping_5.json": grammar.MAPPINGS,
}
"""Documents made by a grammar, by the names of seeds."""

pytestmark = pytest.mark.slow


def _for_a_while(check: Callable[[Seed], None], inputs: st.SearchStrategy[Seed]) -> None:
    """Rounds of examples until the time is over; what fails is shrunk and shown."""
    end = time.monotonic() + _SECONDS
    number = _FIRST
    while time.monotonic() < end:
        seed(number)(_ROUND(given(inputs)(check)))()
        number += 1


def _inputs(reader: str) -> st.SearchStrategy[Seed]:
    return st.sampled_from(SEEDS[reader]()).flatmap(_variants)


def _variants(one: Seed) -> st.SearchStrategy[Seed]:
    """A sound input with damages, or another content for its name."""
    contents = [grammar.damaged_bytes(one.data)]
    name = Path(one.name).name
    if name in _TEXTS:
        contents += 2 * [grammar.damaged_texts(_TEXTS[name])]
    if name.endswith(".parquet"):
        contents += 2 * [grammar.parquet_tables(one.data)]
    return st.one_of(contents).map(lambda data: replace(one, data=data))


def _read(one: Seed) -> None:
    target.read(one.data, one.name, one.beside)


def _join(one: Seed) -> None:
    target.read(one.data, one.name, one.beside, target.join)


def test_every_reader_has_seeds() -> None:
    assert {known.module.lstrip(".") for known in FORMATS} <= SEEDS.keys()


@pytest.mark.parametrize("reader", SEEDS)
def test_seeds_are_sound(tmp_path: Path, reader: str) -> None:
    rows = 0
    for number, one in enumerate(SEEDS[reader]()):
        folder = tmp_path / str(number)
        for name, data in {**one.beside, one.name: one.data}.items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
        if reader == RESULTS:
            target.join(folder)
            rows += 1
            continue
        trace = neuron_tb.load(folder if one.beside else folder / one.name)
        rows += len(trace.slices)
        assert trace.findings.of_kind("bytes_lost") == 0
        assert trace.findings.of_kind("file_unreadable") == 0
    assert rows


@pytest.mark.parametrize("reader", SEEDS)
def test_readers_keep_their_promises(reader: str) -> None:
    _for_a_while(_join if reader == RESULTS else _read, _inputs(reader))


def _guided(reader: str, artifacts: Path) -> subprocess.CompletedProcess[str]:
    # The target has a watch of its own, in processor time; atheris counts a busy machine too.
    options = [
        f"-max_total_time={_SECONDS:.0f}",
        f"-artifact_prefix={artifacts}/",
        f"-seed={_FIRST + 1}",
        "-timeout=300",
        "-max_len=20000",
    ]
    return subprocess.run(
        [sys.executable, "-m", "tests.fuzz.atheris_readers", reader, *options],
        capture_output=True,
        text=True,
        timeout=4 * _SECONDS + 120,
    )


@pytest.fixture(scope="module", autouse=True)
def guided(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, tuple[Path, Future[subprocess.CompletedProcess[str]]]]]:
    """Guided runs of the readers that were chosen, beside the other tests: two at a time in all."""
    chosen = [
        item.callspec.params["reader"]
        for item in request.session.items
        if isinstance(item, pytest.Function)
        and item.originalname == "test_readers_keep_their_promises_under_guidance"
    ]
    pool = ThreadPoolExecutor(1)
    runs = {}
    for reader in chosen if _HAS_ATHERIS else ():
        artifacts = tmp_path_factory.mktemp(reader)
        runs[reader] = artifacts, pool.submit(_guided, reader, artifacts)
    yield runs
    pool.shutdown(cancel_futures=True)


@pytest.mark.parametrize("reader", SEEDS)
@pytest.mark.skipif(not _HAS_ATHERIS, reason="atheris is not installed")
def test_readers_keep_their_promises_under_guidance(
    guided: dict[str, tuple[Path, Future[subprocess.CompletedProcess[str]]]], reader: str
) -> None:
    artifacts, future = guided[reader]
    run = future.result()
    found = [path.read_bytes() for path in artifacts.iterdir()]
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
