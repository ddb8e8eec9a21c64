"""What a user gets: the wheel, the source distribution and an editable install."""

from __future__ import annotations

import configparser
import json
import os
import shutil
import subprocess
import sys
import tarfile
import textwrap
import zipfile
from email.parser import Parser
from pathlib import Path

import pytest

from neuron_tb.simulation.device import build

_ROOT = Path(__file__).resolve().parent.parent
_LEFT_OUT = (".*", "build", "dist", "demo", "*.egg-info", "__pycache__", "node_modules")
# torch calls this one in every process; it may never bring anything along.
_HEAVY = ("torch", "tensorflow", "tensorboard", "xprof", "pandas", "pyarrow")

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not (_ROOT / "setup.cfg").is_file(), reason="not in a source tree"),
]


def _run(*command: str | Path, cwd: Path) -> str:
    """What ``command`` prints; it sees neither this environment's packages nor this folder."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith("PYTHON")}
    done = subprocess.run(
        [*map(str, command)], cwd=cwd, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def distributions(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The source distribution, and the wheel made from it."""
    pytest.importorskip("build", reason="the extra test brings the package build")
    pytest.importorskip("setuptools", reason="the extra test brings setuptools")
    folder = tmp_path_factory.mktemp("distributions")
    source = folder / "source"
    shutil.copytree(_ROOT, source, symlinks=True, ignore=shutil.ignore_patterns(*_LEFT_OUT))
    # With the build tools of this environment: a build must not depend on what PyPI has today.
    _run(sys.executable, "-m", "build", "--no-isolation", "-o", folder, source, cwd=folder)
    return next(folder.glob("*.tar.gz")), next(folder.glob("*.whl"))


@pytest.fixture(scope="module")
def installed(distributions: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a fresh environment that holds the wheel and what it asks for, no extras."""
    folder = tmp_path_factory.mktemp("fresh")
    _run(sys.executable, "-m", "venv", folder / "venv", cwd=folder)
    python = folder / "venv" / "bin" / "python"
    _run(python, "-m", "pip", "install", "-qq", distributions[1], cwd=folder)
    return folder


def _python(installed: Path, code: str) -> str:
    return _run(installed / "venv" / "bin" / "python", "-c", textwrap.dedent(code), cwd=installed)


def test_wheel_holds_plain_files_below_one_name(distributions: tuple[Path, Path]) -> None:
    with zipfile.ZipFile(distributions[1]) as wheel:
        entries = wheel.infolist()
    assert {entry.filename.split("/")[0].split("-")[0] for entry in entries} == {"neuron_tb"}
    assert not any((entry.external_attr >> 16) & 0o170000 == 0o120000 for entry in entries)


def test_wheel_holds_every_module_and_data_file(distributions: tuple[Path, Path]) -> None:
    kinds = {".py", ".json", ".md", ".html", ".js", ".css", ".gz", ".typed"}
    there = {
        path.relative_to(_ROOT).as_posix()
        for folder in ("neuron_tb", "neuron_tb/converters", "neuron_tb/samples")
        for path in (_ROOT / folder).rglob("*")
        if path.is_file() and path.suffix in kinds and "__pycache__" not in path.parts
    }
    with zipfile.ZipFile(distributions[1]) as wheel:
        names = set(wheel.namelist())
    assert there - names == set()
    assert "neuron_tb/py.typed" in names
    assert "neuron_tb/viewing/post_trace.html" in names
    assert sum(name.endswith("/trace.json") for name in names) >= 5


def test_source_distribution_can_run_the_tests(distributions: tuple[Path, Path]) -> None:
    with tarfile.open(distributions[0]) as source:
        names = {name.partition("/")[2] for name in source.getnames()}
        assert not any(member.issym() or member.islnk() for member in source.getmembers())
    for name in ("LICENSE", "README.md", "Makefile", "constraints.txt", "setup.cfg"):
        assert name in names
    assert "tests/conftest.py" in names
    assert "neuron_tb/samples/rmsnorm/make.py" in names


def test_wheel_states_its_terms(distributions: tuple[Path, Path]) -> None:
    with zipfile.ZipFile(distributions[1]) as wheel:
        names = wheel.namelist()
        text = wheel.read(next(n for n in names if n.endswith("/METADATA"))).decode()
        entries = configparser.ConfigParser()
        entries.read_string(
            wheel.read(next(n for n in names if n.endswith("/entry_points.txt"))).decode()
        )
    metadata = Parser().parsestr(text)
    assert metadata["Name"] == "neuron-tb"
    assert metadata["Requires-Python"] == ">=3.10"
    assert metadata["License-Expression"] == "Apache-2.0"
    assert any(name.endswith("licenses/LICENSE") for name in names)
    extras = set(metadata.get_all("Provides-Extra") or ())
    assert {"tensorboard", "torch", "offline", "test", "all"} <= extras
    core = [r for r in metadata.get_all("Requires-Dist") or () if "extra ==" not in r]
    assert {requirement.split(">")[0] for requirement in core} == {
        "click",
        "isal",
        "msgspec",
        "numpy",
        "protobuf",
        "pyarrow",
        "rich",
    }
    assert dict(entries["console_scripts"]) == {"neuron-tb": "neuron_tb.__main__:main"}


def test_nothing_else_appears_in_site_packages(installed: Path) -> None:
    code = """
        import importlib.util, json
        print(json.dumps({name: importlib.util.find_spec(name) is not None for name in
                          ("converters", "samples", "tests", "neuron_tb")}))
    """
    assert json.loads(_python(installed, code)) == {
        "converters": False,
        "samples": False,
        "tests": False,
        "neuron_tb": True,
    }


def test_command_works_without_extras(installed: Path) -> None:
    command = installed / "venv" / "bin" / "neuron-tb"
    assert "summary" in _run(command, "--help", cwd=installed)
    assert "0.1.0" in _run(command, "--version", cwd=installed)
    python = installed / "venv" / "bin" / "python"
    assert "summary" in _run(python, "-m", "neuron_tb", "--help", cwd=installed)
    naive = _python(
        installed,
        "import neuron_tb.samples as s, pathlib; "
        "print(pathlib.Path(s.__file__).parent / 'rmsnorm' / 'naive')",
    ).strip()
    assert "aten::rsqrt" in _run(command, "summary", naive, cwd=installed)
    _run(command, "convert", naive, "-o", "logs", cwd=installed)
    assert (installed / "logs" / "perfetto" / "naive.pftrace").stat().st_size > 1000


def test_live_demo_has_all_it_needs_in_the_wheel(
    distributions: tuple[Path, Path], tmp_path: Path
) -> None:
    pytest.importorskip("torch", reason="the live demo needs torch")
    reason = build.missing()
    if reason:
        pytest.skip(reason)
    site = tmp_path / "site"
    with zipfile.ZipFile(distributions[1]) as wheel:
        for entry in wheel.infolist():
            # pip makes executable what was executable.
            mode = 0o755 if (entry.external_attr >> 16) & 0o111 else 0o644
            Path(wheel.extract(entry, site)).chmod(mode)
    done = subprocess.run(
        [sys.executable, "-m", "neuron_tb", "demo", "--live", "--no-open", "out"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(site)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("Simulated: the training runs on this machine's CPU")
    assert "Self NEURON time total" in done.stdout
    assert "Neuron Explorer's system profile (settings of a simulated device)" in done.stdout
    results = [line.split() for line in done.stdout.splitlines() if "  for " in line]
    assert [words[0] for words in results] == ["xprof", "torch-tb", "kineto", "perfetto"]
    assert all((tmp_path / words[1]).exists() for words in results)
    assert all(words[-1] == "(simulated)" for words in results)


def test_import_brings_nothing_heavy(installed: Path) -> None:
    code = f"""
        import sys
        import neuron_tb, neuron_tb.commands, neuron_tb._autoload
        neuron_tb._autoload.autoload()
        print([name for name in {_HEAVY!r} if name in sys.modules])
    """
    assert _python(installed, code) == "[]\n"


def test_type_checkers_see_the_types(installed: Path) -> None:
    pytest.importorskip("mypy", reason="the extra test brings mypy")
    (installed / "user.py").write_text(
        "import neuron_tb\nreveal_type(neuron_tb.load('x').slices)\nimport neuron_tb.samples\n"
    )
    python = installed / "venv" / "bin" / "python"
    said = _run(
        *(sys.executable, "-m", "mypy", "--strict", "--cache-dir", os.devnull),
        *("--python-executable", python, "user.py"),
        cwd=installed,
    )
    assert 'Revealed type is "neuron_tb.converters.model.rows.Slices"' in said


def test_editable_install_follows_the_links(
    distributions: tuple[Path, Path], tmp_path: Path
) -> None:
    source = distributions[0].parent / "source"
    _run(sys.executable, "-m", "venv", tmp_path / "venv", cwd=tmp_path)
    python = tmp_path / "venv" / "bin" / "python"
    _run(python, "-m", "pip", "install", "-qq", "--no-deps", "--editable", source, cwd=tmp_path)
    code = (
        "import importlib.util as u; "
        "print(u.find_spec('neuron_tb.converters').origin, u.find_spec('neuron_tb.samples').origin,"
        " u.find_spec('converters'), u.find_spec('samples'))"
    )
    converters, samples, *leaked = _run(python, "-c", code, cwd=tmp_path).split()
    assert Path(converters).resolve() == source / "converters" / "__init__.py"
    assert Path(samples).resolve() == source / "samples" / "__init__.py"
    assert leaked == ["None", "None"]
