"""The command line."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from neuron_tb.commands import main
from neuron_tb.commands.common import Size
from neuron_tb.converters.readers.json import bounds
from neuron_tb.converters.storage.output import own_mark
from neuron_tb.overview import help_text
from tests.makers import operator, write_kineto


def run(*words: object) -> Result:
    return CliRunner().invoke(main, [str(word) for word in words])


def json_of(*words: object) -> Any:
    result = run(*words, "--format", "json")
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def test_summary_shows_the_hot_spot_of_the_rmsnorm_example(samples: Path) -> None:
    result = run("summary", samples / "rmsnorm" / "naive")
    assert result.exit_code == 0
    rows = [
        line.split() for line in result.stdout.splitlines() if line.strip().startswith("aten::")
    ]
    found = {r[0]: (r[1], r[5], r[6], r[7]) for r in rows if r[7] == "measured"}
    assert found == {
        "aten::mul": ("3", "1,164.5", "49.5", "measured"),
        "aten::add": ("1", "434.6", "18.5", "measured"),
        "aten::rsqrt": ("1", "415.0", "17.6", "measured"),
        "aten::mean": ("1", "340.8", "14.5", "measured"),
    }
    assert "2,354.9 us, measured" in result.stdout


def test_compare_shows_that_fusing_helps(samples: Path) -> None:
    folder = samples / "rmsnorm"
    rows = json_of("compare", folder / "naive", folder / "rms_norm", folder / "compiled")
    assert [
        (
            c["name"],
            c["calls"],
            c["device_total_us"],
            c["change_percent"] and round(c["change_percent"], 1),
        )
        for c in rows["captures"]
    ] == [
        ("naive", 6, 2354.9, None),
        ("rms_norm", 1, 403.3, -82.9),
        ("compiled", 1, 375.5, -84.1),
    ]
    naive, fused, compiled = rows["captures"]
    assert naive["idle_us"] > 0
    assert (fused["idle_us"], compiled["idle_us"]) == (0, 0)
    for capture, about in ((naive, 125), (fused, 48), (compiled, 98)):
        assert capture["cpu_total_us"] == pytest.approx(about, abs=5)
    table = run("compare", folder / "naive", folder / "rms_norm", folder / "compiled").stdout
    assert "-82.9" in table
    assert "-84.1" in table


def test_summary_json_has_the_documented_keys(samples: Path) -> None:
    found = json_of("summary", samples / "rmsnorm" / "naive")
    assert {"rows", "device_total_us", "findings"} <= set(found)
    assert set(found["rows"][0]) == {
        "name",
        "calls",
        "cpu_total_us",
        "cpu_self_us",
        "device_total_us",
        "device_self_us",
        "device_percent",
        "device_source",
    }


def test_absent_values_are_null_in_json_and_a_dash_in_tables(tmp_path: Path) -> None:
    path = write_kineto(tmp_path / "t.json", [operator("a", 0, 9)])
    assert json_of("summary", path)["rows"][0]["device_total_us"] is None
    line = next(
        line for line in run("summary", path).stdout.splitlines() if line.strip().startswith("a ")
    )
    assert line.split()[4:] == ["-", "-", "-", "-"]


def test_strict_exits_with_three_when_there_are_findings(tmp_path: Path) -> None:
    path = write_kineto(tmp_path / "t.json", [operator("a", 0, 9)])
    assert run("summary", path).exit_code == 0
    assert run("summary", path, "--strict").exit_code == 3


@pytest.mark.parametrize("command", ["summary", "compare", "info", "convert", "check"])
@pytest.mark.parametrize(
    ("content", "words"),
    [(None, "does not exist"), (b"", "an empty file"), (b"<html>", "a web page")],
)
def test_bad_input_gives_one_sentence_and_exit_one(
    tmp_path: Path, command: str, content: bytes | None, words: str
) -> None:
    path = tmp_path / "x.json"
    if content is not None:
        path.write_bytes(content)
    more = ["-o", tmp_path / "out"] if command == "convert" else []
    result = run(command, path, *more)
    assert result.exit_code == 1
    assert "Traceback" not in result.output
    assert len(result.stderr.strip().splitlines()) == 1
    if command != "check":
        assert words in result.stderr
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("command", ["summary", "compare", "info", "convert", "roofline"])
def test_a_pipe_is_refused_and_not_waited_for(tmp_path: Path, command: str) -> None:
    os.mkfifo(tmp_path / "trace.json")
    more = ["-o", tmp_path / "out"] if command == "convert" else []
    result = run(command, tmp_path / "trace.json", *more)
    assert result.exit_code == 1
    assert "is a pipe or a device" in result.stderr


def test_pipes_in_folders_of_results_are_no_results(samples: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    for name in ("naive.json", "x.json", "y.json.unfinished"):
        os.mkfifo(out / name)
    assert run("check", out).exit_code == 1
    assert run("merge", out, "-o", tmp_path / "merged").exit_code == 1
    result = run("convert", samples / "rmsnorm" / "naive", "-o", out, "--force")
    assert "naive.json is no list of a run's files" in result.stderr


@pytest.mark.parametrize(
    ("place", "words"),
    [
        ("file", "file is no folder"),
        ("link", "link is no folder"),
        ("loop", "loop is no folder"),
        ("file/below", "file/below: Not a directory."),
        ("/proc/below", "/proc/below: No such file or directory."),
        ("x" * 300, "File name too long."),
        ("s3://", "s3:// names no bucket"),
    ],
)
def test_a_place_that_cannot_be_written_gives_one_sentence(
    samples: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str, words: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("file").touch()
    Path("link").symlink_to("/nowhere/at/all")
    Path("loop").symlink_to("loop")
    result = run("convert", samples / "rmsnorm" / "naive", "-o", place, "--to", "kineto")
    assert result.exit_code == 1
    assert words in result.stderr
    assert "Errno" not in result.stderr
    assert len(result.stderr.strip().splitlines()) == 1


def test_convert_writes_all_targets_and_says_what_to_do_next(samples: Path, tmp_path: Path) -> None:
    result = run("convert", samples / "rmsnorm" / "naive", "-o", tmp_path / "out")
    assert result.exit_code == 0, result.output
    assert "neuron-tb view" in result.stdout
    found = {
        str(p.relative_to(tmp_path / "out")) for p in (tmp_path / "out").rglob("*") if p.is_file()
    }
    assert any(f.startswith("plugins/profile/naive/") and f.endswith(".xplane.pb") for f in found)
    assert any(f.startswith("naive/") and f.endswith(".pt.trace.json.gz") for f in found)
    assert "kineto/naive/rank0.trace.json.gz" in found
    assert "perfetto/naive.pftrace" in found
    assert found >= {"naive.json"}
    assert len(found) == 5


@pytest.mark.parametrize(
    ("given", "size"), [("16G", 16 << 30), ("512MiB", 512 << 20), ("1.5k", 1536), ("77", 77)]
)
def test_sizes_are_given_with_or_without_a_unit(given: str, size: int) -> None:
    assert Size().convert(given, None, None) == size


@pytest.mark.parametrize("given", ["", "0", "-1", "16X", "1e9", "99999999T", "9" * 5000])
def test_what_is_no_size_is_refused(given: str, samples: Path) -> None:
    result = run("info", str(samples / "rmsnorm" / "naive"), "--max-size", given)
    assert result.exit_code == 2
    assert "is no size" in result.output


def test_a_file_over_the_limit_is_read_when_the_limit_is_raised(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write_kineto(tmp_path / "t.json", [operator("a", 0, 1)])
    monkeypatch.setattr(bounds, "MAX_SIZE", 100)
    for command in ("info", "summary"):
        assert run(command, str(path)).exit_code == 1
    assert "--max-size raises the limit" in run("info", str(path)).output
    assert run("info", str(path), "--max-size", "1k").exit_code == 0
    assert bounds.MAX_SIZE == 100


def test_the_list_of_a_runs_files_is_complete_and_survives_writing_in_parts(
    samples: Path, tmp_path: Path
) -> None:
    source, out = samples / "rmsnorm" / "naive", tmp_path / "out"
    for target in ("perfetto", "kineto"):
        assert run("convert", source, "-o", out, "--to", target).exit_code == 0
    listed = json.loads((out / "naive.json").read_text())
    assert [f["target"] for f in listed["files"]] == ["perfetto", "kineto"]
    for file in listed["files"]:
        assert (out / file["path"]).stat().st_size == file["bytes"]
    assert list(out.glob("*.unfinished")) == []


def test_convert_json_lists_what_was_written(samples: Path, tmp_path: Path) -> None:
    found = json_of("convert", samples / "rmsnorm" / "naive", "-o", tmp_path / "out")
    assert {w["target"] for w in found["written"]} == {"xprof", "torch-tb", "kineto", "perfetto"}
    assert all(Path(w["path"]).exists() and w["slices"] > 0 for w in found["written"])


def test_an_existing_result_is_kept_without_force(samples: Path, tmp_path: Path) -> None:
    words = ("convert", samples / "rmsnorm" / "naive", "-o", tmp_path / "out", "--to", "perfetto")
    assert run(*words).exit_code == 0
    again = run(*words)
    assert again.exit_code == 1
    assert "--force" in again.stderr
    assert run(*words, "--force").exit_code == 0


@pytest.mark.parametrize(
    "name", ["../evil", "/etc/evil", "a/../../evil", "plugins", "..", "x" * 300]
)
def test_a_run_name_cannot_leave_the_folder(samples: Path, tmp_path: Path, name: str) -> None:
    out = tmp_path / "deep" / "out"
    result = run("convert", samples / "rmsnorm" / "naive", "-o", out, "--run", name)
    assert result.exit_code == 0, result.output
    outside = [p for p in tmp_path.rglob("*") if p.is_file() and out not in p.parents]
    assert outside == []


def test_info_lists_what_nothing_here_opens(tmp_path: Path) -> None:
    for name in ("profile.ntff", "graph.neff", "snapshot.pickle"):
        (tmp_path / name).write_bytes(b"x")
    result = run("info", tmp_path)
    assert result.exit_code == 1
    assert "not opened: graph.neff, profile.ntff, snapshot.pickle" in result.output
    assert "neuron-explorer view -n" in result.output
    printed = json.loads(run("info", tmp_path, "--format", "json").stdout)
    assert len(printed["captures"][0]["not_opened"]) == 3
    assert "neuron-explorer view -n" in printed["error"]


def test_info_says_what_is_missing(tmp_path: Path) -> None:
    directory = tmp_path / "i-0test_pid_501" / "1759300074000000000"
    write_kineto(directory / "trace.json", [operator("a", 0, 9)])
    result = run("info", tmp_path)
    assert result.exit_code == 0
    assert "lacks: no system profile" in result.stdout
    found = json_of("info", tmp_path)
    assert found["captures"][0]["pid"] == 501
    assert found["slices"] == {"operator": 1}


def test_help_imports_nothing_heavy() -> None:
    code = (
        "import sys; from click.testing import CliRunner; from neuron_tb.commands import main; "
        "r = CliRunner().invoke(main, ['--help']); assert r.exit_code == 0; "
        "heavy = {'numpy', 'pyarrow', 'rich', 'msgspec', 'torch', 'tensorboard', 'google'}; "
        "print(sorted(heavy & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_debug_shows_the_traceback(tmp_path: Path) -> None:
    result = run("summary", tmp_path / "absent", "--debug")
    assert result.exception is not None
    assert type(result.exception).__name__ == "NeuronTbError"


def test_the_same_capture_gives_the_same_bytes(samples: Path, tmp_path: Path) -> None:
    found = []
    for seed in ("1", "2"):
        out = tmp_path / seed
        subprocess.run(
            [sys.executable, "-m", "neuron_tb", "convert", samples / "training", "-o", out],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            check=True,
        )
        files = sorted(p for p in out.rglob("*") if p.is_file())
        found.append({str(p.relative_to(out)): p.read_bytes() for p in files})
    assert found[0] == found[1]


def test_the_readme_shows_what_the_commands_print(samples: Path) -> None:
    readme = Path(__file__).parents[2] / "README.md"
    shown = {" ".join(line.split()) for line in readme.read_text().splitlines()}
    folder = samples / "rmsnorm"
    for words in (
        ("summary", folder / "naive"),
        ("compare", folder / "naive", folder / "rms_norm", folder / "compiled"),
    ):
        lines = [" ".join(line.split()) for line in run(*words).stdout.splitlines()]
        numbers = [line for line in lines if "measured" in line]
        assert numbers
        assert set(numbers) <= shown


def test_results_in_the_capture_are_not_read_as_captures(samples: Path, tmp_path: Path) -> None:
    folder = tmp_path / "naive"
    shutil.copytree(samples / "rmsnorm" / "naive", folder)
    assert run("convert", folder, "-o", folder / "logs").exit_code == 0
    found = json_of("summary", folder)
    assert found["device_total_us"] == 2354.9
    assert [f["kind"] for f in found["findings"]] == ["own_result"]


def test_an_interrupted_conversion_fails_the_check_and_is_replaced_without_force(
    samples: Path, tmp_path: Path
) -> None:
    words = ("convert", samples / "rmsnorm" / "naive", "-o", tmp_path, "--to", "perfetto")
    assert run(*words).exit_code == 0
    (tmp_path / "naive.json").rename(tmp_path / "naive.json.unfinished")
    mark = json.loads((tmp_path / "naive.json.unfinished").read_text())
    dead = own_mark().replace(f"-{os.getpid()}-", "-4194999-")
    (tmp_path / "naive.json.unfinished").write_text(json.dumps({**mark, "by": dead}))
    result = run("check", tmp_path)
    assert result.exit_code == 4
    assert "did not end" in result.stdout
    assert run(*words).exit_code == 0
    assert run("check", tmp_path).exit_code == 0


def test_names_from_a_trace_cannot_command_the_terminal(tmp_path: Path) -> None:
    name = "a\x1b[31m\u202eb\nc"
    path = write_kineto(tmp_path / "t.json", [operator(name, 0, 9)])
    output = run("summary", path).stdout
    assert "\x1b[31m" not in output
    assert "\u202e" not in output
    assert "a\\x1b[31m\\u202eb\\nc" in output


def test_the_quick_help_is_the_help_of_click() -> None:
    shown = CliRunner().invoke(main, ["--help"], prog_name="neuron-tb", terminal_width=78)
    assert help_text() == shown.output
