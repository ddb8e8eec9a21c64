"""What README and docs say is what the code does."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from neuron_tb.converters.readers.json.repair import report
from neuron_tb.overview import COMMANDS

ROOT = Path(__file__).parents[1]


def kinds_of_findings() -> set[str]:
    """The kinds in calls of ``findings.add``, and those of repairs."""
    sources = (path.read_text() for path in (ROOT / "neuron_tb" / "converters").rglob("*.py"))
    added = (re.findall(r'findings\.add\(\s*"(\w+)"', text) for text in sources)
    return {kind for kinds in added for kind in kinds} | set(report._MESSAGES)


def test_every_kind_of_finding_is_listed() -> None:
    kinds, listed = kinds_of_findings(), (ROOT / "docs" / "findings.md").read_text()
    assert len(kinds) > 80
    assert [kind for kind in sorted(kinds) if f"`{kind}`" not in listed] == []


def test_the_walk_through_shows_the_tables_of_the_readme() -> None:
    readme, path = ((ROOT / name).read_text() for name in ("README.md", "docs/path.md"))
    rows = [line for line in readme.splitlines() if line.rstrip().endswith("measured")]
    assert len(rows) == 7
    assert set(rows) <= set(path.splitlines())


@pytest.mark.parametrize("name", ["README.md", "CONTRIBUTING.md"])
def test_links_lead_somewhere(name: str) -> None:
    """Those of docs/ are tried where the site is built."""
    targets = re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", (ROOT / name).read_text())
    assert targets
    assert [target for target in targets if not (ROOT / target).exists()] == []


def test_the_readme_names_every_command() -> None:
    readme = (ROOT / "README.md").read_text()
    assert [name for name in COMMANDS if f"| `{name}" not in readme] == []
