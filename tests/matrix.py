"""The tests on the oldest and newest Python, and with the oldest and newest protobuf.

Run by ``make matrix``, with any Python and nothing installed. Each leg has an environment of its
own below ``.venv-matrix/``, kept for the next run. A leg installs only what it names, and tests
that need more skip there. Ends with status 1 when a leg failed or its Python is missing.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

_REPOSITORY = Path(__file__).resolve().parent.parent
_ENVIRONMENTS = _REPOSITORY / ".venv-matrix"
_TOOLS = ("pytest", "hypothesis")
_AT_ONCE = 2


@dataclass(frozen=True)
class Leg:
    """One combination: a Python, and what is installed beside the tests' own tools."""

    name: str
    python: str
    packages: tuple[str, ...]


LEGS = (
    # The lower bounds of setup.cfg, and XProf's converter beside a protobuf of 2023.
    Leg(
        "oldest",
        "3.10",
        (
            ".",
            "click==8.2.0",
            "isal==1.5.*",
            "msgspec==0.23.0",
            "numpy==1.26.*",
            "protobuf==4.25.*",
            "pyarrow==14.0.*",
            "rich==13.0.*",
            "xprof",
        ),
    ),
    # TensorBoard needs protobuf 6.31 or newer.
    Leg("protobuf-6", "3.10", (".[tensorboard,offline]", "protobuf==6.31.*", "perfetto")),
    Leg("protobuf-4", "3.13", (".", "protobuf==4.25.*", "xprof")),
    Leg("newest", "3.13", (".[tensorboard,offline]", "perfetto")),
)


def _pythons(version: str) -> Iterator[str]:
    """Candidates for an interpreter of ``version``: on PATH, then those of pyenv."""
    if sys.version_info[:2] == tuple(map(int, version.split("."))):
        yield sys.executable
    found = shutil.which(f"python{version}")
    if found:
        yield found
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    for folder in sorted(pyenv.glob(f"{version}.*"), reverse=True):
        yield str(folder / "bin" / "python")


def find_python(version: str) -> str | None:
    """An interpreter that says it is ``version``; a name on PATH may be a shim for another."""
    question = "import sys; print('%d.%d' % sys.version_info[:2])"
    for candidate in _pythons(version):
        try:
            answer = subprocess.run(
                [candidate, "-c", question], capture_output=True, text=True, check=True
            )
        except (OSError, subprocess.CalledProcessError):
            continue
        if answer.stdout.strip() == version:
            return candidate
    return None


def prepare(leg: Leg, python: str) -> Path:
    """The interpreter of the leg's environment, with everything the leg names."""
    environment = _ENVIRONMENTS / leg.name
    interpreter = environment / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
    stamp = environment / "installed.txt"
    wanted = "\n".join((python, *leg.packages, (_REPOSITORY / "setup.cfg").read_text("utf-8")))
    if stamp.exists() and stamp.read_text("utf-8") == wanted:
        return interpreter
    shutil.rmtree(environment, ignore_errors=True)
    subprocess.run([python, "-m", "venv", environment], check=True)
    pip = [interpreter, "-m", "pip", "--disable-pip-version-check", "install", "-qq"]
    subprocess.run([*pip, "--upgrade", "pip"], check=True)
    ours = ["--editable", leg.packages[0]]
    subprocess.run([*pip, *ours, *leg.packages[1:], *_TOOLS], check=True, cwd=_REPOSITORY)
    stamp.write_text(wanted, "utf-8")
    return interpreter


def installed(leg: Leg) -> Path | str:
    """The leg's interpreter, or why there is none."""
    python = find_python(leg.python)
    if python is None:
        return f"no Python {leg.python} on PATH or in pyenv"
    try:
        return prepare(leg, python)
    except subprocess.CalledProcessError as error:
        return f"could not be installed ({error})"


def run(leg: Leg, interpreter: Path | str, arguments: list[str]) -> str:
    """How the leg ended, in a word; what it printed is printed when it has ended."""
    if isinstance(interpreter, str):
        return interpreter
    chosen = ["-m", "not slow and not browser", "-r", "fE", "-p", "no:cacheprovider"]
    command = [interpreter, "-m", "pytest", "-q", *chosen, *arguments]
    done = subprocess.run(
        command, cwd=_REPOSITORY, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    title = f"\n== {leg.name}: Python {leg.python}, {', '.join(leg.packages)}\n"
    sys.stdout.write(title + done.stdout)
    sys.stdout.flush()
    return "passed" if done.returncode == 0 else f"failed (pytest's status {done.returncode})"


def main() -> int:
    """Run all legs, or those named by the environment variable LEGS; print how each ended."""
    names = os.environ.get("LEGS", "").split() or [leg.name for leg in LEGS]
    legs = [leg for leg in LEGS if leg.name in names]
    # One after the other: each builds in this directory.
    interpreters = [installed(leg) for leg in legs]
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        ends = list(pool.map(run, legs, interpreters, [sys.argv[1:]] * len(legs)))
    pairs = zip(legs, ends, strict=True)
    sys.stdout.write("\n" + "".join(f"{leg.name}: {how}\n" for leg, how in pairs))
    return int(not ends or any(how != "passed" for how in ends))


if __name__ == "__main__":
    sys.exit(main())
