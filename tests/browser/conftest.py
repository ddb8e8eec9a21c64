"""A headless Chromium, what it shows, and what is missing for it on this machine."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import pytest

import neuron_tb

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

_NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
_FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
PATIENCE = 60_000
"""Milliseconds that anything on a page may take."""


def missing(what: str) -> NoReturn:
    if os.environ.get("NEURON_TB_REQUIRE_BROWSER"):
        pytest.fail(f"{what}, and NEURON_TB_REQUIRE_BROWSER asks for the browser tests")
    pytest.skip(what)


def require(*modules: str) -> None:
    """Skip, or fail where browser tests are asked for, when one of ``modules`` is missing."""
    for module in modules:
        if find_spec(module) is None:
            missing(f"the package {module} is not installed")


@pytest.fixture(scope="package")
def chromium() -> Iterator[Browser]:
    """A browser of the system: the tests download none."""
    path = os.environ.get("NEURON_TB_CHROMIUM") or next(filter(None, map(shutil.which, _NAMES)), "")
    if not path:
        missing("no Chromium is installed (none of " + ", ".join(_NAMES) + " on PATH)")
    require("playwright")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=list(_FLAGS))
        yield browser
        browser.close()


@pytest.fixture
def page(chromium: Browser) -> Iterator[Page]:
    """A page of a fresh profile, as large as the pictures in the README."""
    context = chromium.new_context(viewport={"width": 1600, "height": 900})
    context.set_default_timeout(PATIENCE)
    yield context.new_page()
    context.close()


@pytest.fixture(scope="session")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where screenshots go: NEURON_TB_SCREENSHOTS, or a temporary folder."""
    asked = os.environ.get("NEURON_TB_SCREENSHOTS")
    folder = Path(asked) if asked else tmp_path_factory.mktemp("pictures")
    folder.mkdir(parents=True, exist_ok=True)
    return folder


@pytest.fixture(scope="session")
def logs(samples: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The naive RMSNorm sample, written for every viewer."""
    out = tmp_path_factory.mktemp("logs")
    neuron_tb.convert(samples / "rmsnorm" / "naive", out=out)
    return out


def evaluate(page: Page, script: str, argument: object = None) -> Any:
    """What a function of the page returns; fails where the page does not answer in time.

    Playwright itself waits for ever, and a browser short of memory may never answer.
    """
    limited = """([script, argument, patience]) => Promise.race([
      (0, eval)(script)(argument),
      new Promise((_, fail) => setTimeout(() => fail(new Error("no answer")), patience)),
    ])"""
    return page.evaluate(limited, [script, argument, PATIENCE])


def assert_is_picture(path: Path, width: int, height: int) -> None:
    """A PNG of that size; an empty page of one colour would be a few kilobytes."""
    data = path.read_bytes()
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    assert (int.from_bytes(data[16:20], "big"), int.from_bytes(data[20:24], "big")) == (
        width,
        height,
    )
    assert len(data) > 30_000
