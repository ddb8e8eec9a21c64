"""TensorBoard's Profile tab, in Chromium, without internet."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from neuron_tb.viewing.tensorboard_server import TensorBoardServer, serve_logdir

from .conftest import PATIENCE, assert_is_picture, require

if TYPE_CHECKING:
    from playwright.sync_api import Frame, Page

pytestmark = [pytest.mark.browser, pytest.mark.slow, pytest.mark.flaky(reruns=2)]

_OPERATOR_MICROSECONDS = {
    "aten::mul": 1164.5,
    "aten::mean": 340.8,
    "aten::add": 434.6,
    "aten::rsqrt": 415.0,
}

_DRAWN = """() => {
  const view = document.querySelector("tr-ui-timeline-view");
  if (!view || !view.model || !view.trackView_) return null;
  const processes = {};
  for (const process of view.model.getAllProcesses()) {
    processes[process.userFriendlyName] = Object.values(process.threads).map(thread => ({
      row: thread.userFriendlyName,
      slices: thread.sliceGroup.slices.map(slice => [slice.title, slice.duration * 1000]),
    }));
  }
  return processes;
}"""

_ZOOM = """() => {
  const view = document.querySelector("tr-ui-timeline-view").trackView_;
  const bounds = view.model.bounds;
  const margin = (bounds.max - bounds.min) * 0.02;
  const transform = new tr.ui.TimelineDisplayTransform();
  const width = view.viewport.modelTrackContainer.canvas.clientWidth || view.clientWidth;
  transform.xSetWorldBounds(bounds.min - margin, bounds.max + margin, width);
  view.viewport.setDisplayTransformImmediately(transform);
}"""


@pytest.fixture(scope="module")
def tensorboard(logs: Path) -> Iterator[TensorBoardServer]:
    require("tensorboard", "xprof")
    with serve_logdir(logs) as server:
        yield server


def _frame(page: Page, part: str) -> Frame:
    """The frame whose address has ``part``, once there is one."""
    for _ in range(PATIENCE // 200):
        for frame in page.frames:
            if part in frame.url:
                return frame
        page.wait_for_timeout(200)
    raise AssertionError(f"no frame with {part}: {[frame.url for frame in page.frames]}")


def _drawn(page: Page) -> dict[str, Any]:
    """What Trace Viewer holds: per process its rows, per row its slices (name, us)."""
    frame = _frame(page, "trace_viewer_index.html")
    drawn: dict[str, Any] = frame.wait_for_function(_DRAWN).json_value()
    return drawn


def test_profile_tab_opens_trace_viewer_with_the_samples_operators(
    page: Page, tensorboard: TensorBoardServer
) -> None:
    page.goto(tensorboard.url)
    profile = _frame(page, "/data/plugin/profile/")
    profile.get_by_text("Overview Page").first.click()
    profile.get_by_role("option", name="Trace Viewer").click()

    drawn = _drawn(page)

    device = next(rows for name, rows in drawn.items() if "/device:TPU:0" in name)
    operators = next(row["slices"] for row in device if "XLA Ops" in row["row"])
    totals = dict.fromkeys(_OPERATOR_MICROSECONDS, 0.0)
    for name, microseconds in operators:
        totals[name] += microseconds
    assert totals == pytest.approx(_OPERATOR_MICROSECONDS, abs=0.05)
    assert any("/host:CPU" in name for name in drawn)


def test_trace_viewer_has_an_address_of_its_own(
    page: Page, tensorboard: TensorBoardServer, pictures: Path
) -> None:
    page.goto(tensorboard.trace_viewer_url("naive"))
    assert _drawn(page)

    viewer = _frame(page, "trace_viewer_index.html")
    assert viewer.get_by_text("NeuronCore 0 (XLA Ops)").first.is_visible()
    _frame(page, "/data/plugin/profile/trace_viewer@").locator("button", has_text="menu").click()
    viewer.locator("button", has_text="Flow events").click()
    viewer.locator("tr-ui-b-dropdown input[value=All]").first.click()
    viewer.locator("tr-ui-timeline-view").press("Escape")
    viewer.evaluate(_ZOOM)
    page.wait_for_timeout(1500)
    picture = pictures / "xprof_trace_viewer.png"
    page.screenshot(path=picture)
    assert_is_picture(picture, 1600, 900)
