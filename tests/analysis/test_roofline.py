"""The roofline: figures, their sources, what is not known, and the picture."""

from __future__ import annotations

import builtins
import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from neuron_tb.analysis.roofline import Profile, roofline
from neuron_tb.commands import main
from neuron_tb.converters.errors import NeuronTbError
from neuron_tb.converters.load import load
from tests.device_makers import PEAK, metadata, summary, write_profile, write_tables
from tests.makers import operator, write_json, write_kineto

TIME = 160e-6
WITHOUT_PERCENTAGES = {
    "hfu_estimated_percent": None,
    "mfu_estimated_percent": None,
    "mbu_estimated_percent": None,
}


def one(path: Path, **more: Any) -> Profile:
    (profile,) = roofline(path, **more).profiles
    return profile


def with_rows(root: Path, own: dict[str, Any], of_device: dict[str, Any]) -> Path:
    """A profile of two tables; a column given as None is absent."""
    rows = {"Summary": summary(**own), "Metadata": metadata(**of_device)}
    content = {n: [{k: v for k, v in row.items() if v is not None}] for n, row in rows.items()}
    return write_tables(root / "p", content)


def test_figures_follow_their_formulas(tmp_path: Path) -> None:
    profile = one(write_profile(tmp_path))
    expected = {
        "total_time": TIME,
        "hardware_flops": 0.2 * PEAK * TIME,
        "matmul_flops": 0.15 * PEAK * TIME,
        "hbm_bytes": 16e6,
        "peak_flops": PEAK,
        "hbm_bandwidth": 4e11,
        "arithmetic_intensity": 0.15 * PEAK * TIME / 16e6,
        "ridge_point": PEAK / 4e11,
        "achieved_flops": 0.15 * PEAK,
        "attainable_flops": 0.15 * PEAK * TIME / 16e6 * 4e11,
        "hfu": 20.0,
        "mfu": 10.0,
        "mfu_instructions": 15.0,
        "mfu_ceiling": 100 * (0.1 * PEAK * TIME / 16e6) / (PEAK / 4e11),
        "mbu": 25.0,
    }
    assert {key: profile.value(key) for key in expected} == pytest.approx(expected)
    assert profile.verdict == "memory-bound"
    assert profile.reason == "137.6 FLOP/B is below the ridge point, 229.4 FLOP/B"
    assert profile.busy["TensorE"] == pytest.approx((90e-6, 90 / 160))
    assert profile.core == 0


def test_every_input_of_a_formula_is_given(tmp_path: Path) -> None:
    for figure in one(write_profile(tmp_path)).figures.values():
        assert figure.value is not None
        assert figure.inputs or figure.formula in (figure.key, "hbm_ddr_bandwidth")
        assert all(name in figure.formula for name in figure.inputs)


def test_much_work_per_byte_is_compute_bound(tmp_path: Path) -> None:
    profile = one(with_rows(tmp_path, {"hbm_read_bytes": 1_000_000}, {}))
    assert profile.verdict == "compute-bound"
    assert profile.value("attainable_flops") == profile.value("peak_flops")


def test_json_tables_and_a_loaded_trace_give_the_same_figures(tmp_path: Path) -> None:
    folder = write_profile(tmp_path / "a")
    document = {"summary": [summary()], "metadata": [metadata()]}
    path = write_json(tmp_path / "device_profile_model_1.json", document)
    figures = [
        {key: figure.as_dict() for key, figure in profile.figures.items()}
        for profile in (one(folder), one(path), roofline(load(folder)).profiles[0])
    ]
    assert figures[0] == figures[1] == figures[2]


# -- the peak -------------------------------------------------------------------------------------


@pytest.mark.parametrize(("cores", "scale"), [(1, 1.0), (1, 100.0), (2, 1.0), (2, 100.0)])
def test_the_profiles_own_percentage_says_of_how_many_cores_the_peak_is(
    tmp_path: Path, cores: int, scale: float
) -> None:
    own = {**WITHOUT_PERCENTAGES, "hfu_estimated_percent": 0.4 / cores * scale}
    figure = one(with_rows(tmp_path, own, {})).figures["peak_flops"]
    assert figure.value == PEAK / 2 * cores
    assert "hfu_estimated_percent" in (figure.source or "")


def test_an_unsettled_number_of_cores_is_not_guessed(tmp_path: Path) -> None:
    folder = with_rows(tmp_path, WITHOUT_PERCENTAGES, {})
    profile = one(folder)
    assert profile.value("peak_flops") is None
    assert "--physical-cores" in (profile.figures["hfu"].reason or "")
    assert profile.verdict is None
    assert profile.value("mbu") == pytest.approx(25.0)  # needs no peak
    assert one(folder, physical_cores=2).value("peak_flops") == PEAK


def test_one_physical_core_needs_no_evidence(tmp_path: Path) -> None:
    folder = with_rows(tmp_path, WITHOUT_PERCENTAGES, {"num_physical_cores": 1})
    assert one(folder).value("peak_flops") == PEAK / 2


def test_percentages_of_different_peaks_settle_nothing(tmp_path: Path) -> None:
    own = {"hfu_estimated_percent": 0.2, "mfu_estimated_percent": 0.2}
    profile = one(with_rows(tmp_path, own, {}))
    assert "not of the same number" in (profile.figures["peak_flops"].reason or "")


def test_a_clock_in_another_unit_is_read_by_the_profiles_schema(tmp_path: Path) -> None:
    folder = with_rows(tmp_path, {}, {"tensor_engine_clock_freq": 1400})
    profile = one(folder)
    assert "own clock" not in (profile.figures["peak_flops"].source or "")
    fields = [
        {"table_name": "Metadata", "field_name": "tensor_engine_clock_freq", "field_unit": "MHz"}
    ]
    assert one(write_tables(folder, {"SchemaFields": fields})).value("peak_flops") == PEAK


def test_published_peaks_fill_the_gap_and_are_named(tmp_path: Path) -> None:
    absent = {"tensor_engine_clock_freq": None, "hbm_ddr_bandwidth": None}
    profile = one(with_rows(tmp_path, {}, absent))
    assert profile.value("peak_flops") == pytest.approx(667e12 / 4)
    assert profile.value("hbm_bandwidth") == pytest.approx(2.9e12 / 4)
    source = profile.figures["peak_flops"].source or ""
    assert source.startswith("published dense BF16 peak of AWS Trainium2 (AWS Neuron documentation")
    nothing = with_rows(tmp_path / "n", {}, {**absent, "instance_type": None})
    assert "--instance-type" in (one(nothing).figures["peak_flops"].reason or "")
    given = one(nothing, instance_type="trn1.32xlarge", physical_cores=1)
    assert given.value("peak_flops") == pytest.approx(95e12)
    odd = with_rows(tmp_path / "o", {}, {**absent, "instance_type": "trn9.large"})
    assert "trn9.large" in (one(odd).figures["peak_flops"].reason or "")


def test_the_profiles_own_ratio_gives_a_peak_where_there_is_no_clock(tmp_path: Path) -> None:
    own = {"peak_flops_bandwidth_ratio": 200.0}
    figure = one(with_rows(tmp_path, own, {"tensor_engine_clock_freq": None})).figures["peak_flops"]
    assert (figure.value, figure.formula) == (8e13, "peak_flops_bandwidth_ratio * hbm_bandwidth")


# -- what is not known -----------------------------------------------------------------------


def test_model_flops_of_0_are_not_measured(tmp_path: Path) -> None:
    profile = one(with_rows(tmp_path, {"model_flops": 0, "mfu_estimated_percent": 0.0}, {}))
    assert profile.value("mfu") is None
    assert "no HLO statistics" in (profile.figures["mfu"].reason or "")
    assert profile.value("mfu_instructions") == pytest.approx(15.0)


def test_a_summary_without_columns_prints_reasons_and_no_zero(tmp_path: Path) -> None:
    profile = one(write_json(tmp_path / "s.json", {"n_1": {"total_time": 1e-3}}))
    known = {key for key, figure in profile.figures.items() if figure.value is not None}
    assert known == {"total_time"}
    assert all(figure.reason for key, figure in profile.figures.items() if key not in known)
    assert profile.verdict is None


def test_no_byte_at_all_is_no_intensity(tmp_path: Path) -> None:
    profile = one(with_rows(tmp_path, {"hbm_read_bytes": 0, "hbm_write_bytes": 0}, {}))
    assert profile.figures["arithmetic_intensity"].reason == "hbm_bytes is 0"


def test_a_stated_figure_that_differs_is_a_finding(tmp_path: Path) -> None:
    found = roofline(with_rows(tmp_path, {"mbu_estimated_percent": 0.7}, {}))
    (finding,) = [f for f in found.findings if f.kind == "roofline_differs"]
    assert "MBU is 25 %" in finding.message
    assert found.profiles[0].figures["mbu"].stated == {"mbu_estimated_percent": 0.7}
    assert not roofline(write_profile(tmp_path / "same")).findings


def test_a_capture_without_device_profile_gets_a_sentence(tmp_path: Path) -> None:
    path = write_kineto(tmp_path / "trace.json", [operator("aten::mm", 0, 5)])
    with pytest.raises(NeuronTbError, match=r"no device profile .*neuron-explorer view"):
        roofline(path)


# -- the command -----------------------------------------------------------------------------


def test_the_command_prints_figures_with_their_formulas(tmp_path: Path) -> None:
    result = CliRunner().invoke(main, ["roofline", str(write_profile(tmp_path))])
    assert result.exit_code == 0, result.output
    lines = [" ".join(line.split()) for line in result.output.splitlines()]
    assert any(
        line.startswith(
            "HFU 20.00 % hardware_flops / (peak_flops * total_time) = "
            "2.936 GFLOP / (91.750 TFLOP/s * 160.0 us)"
        )
        for line in lines
    )
    assert any(line.startswith("memory-bound: ") for line in lines)


def test_the_keys_of_its_json_are_documented(tmp_path: Path) -> None:
    result = CliRunner().invoke(
        main, ["roofline", str(write_profile(tmp_path)), "--format", "json"]
    )
    document = json.loads(result.output)
    text = (Path(__file__).parents[2] / "docs" / "json.md").read_text()
    section = text.split("## `roofline`")[1].split("\n## ")[0]
    (profile,) = document["profiles"]
    keys = {*document, *profile, *profile["figures"], *profile["figures"]["hfu"]}
    assert not [key for key in keys if f"`{key}" not in section]


def test_the_picture_is_drawn_and_is_the_same_each_time(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    source = write_profile(tmp_path)
    for name in ("a.svg", "b.svg", "c.png"):
        result = CliRunner().invoke(main, ["roofline", str(source), "--plot", str(tmp_path / name)])
        assert result.exit_code == 0, result.output
    assert (tmp_path / "a.svg").read_bytes() == (tmp_path / "b.svg").read_bytes()
    assert (tmp_path / "c.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("name", "words"),
    [("roof.txt", "must end in"), ("roof.png", "peak of p is not known")],
)
def test_what_cannot_be_drawn_is_a_sentence(tmp_path: Path, name: str, words: str) -> None:
    folder = with_rows(tmp_path, WITHOUT_PERCENTAGES, {})
    result = CliRunner().invoke(main, ["roofline", str(folder), "--plot", str(tmp_path / name)])
    assert result.exit_code == 1
    assert words in result.output
    assert not (tmp_path / name).exists()


def test_without_matplotlib_the_extra_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = builtins.__import__

    def refuse(name: str, *args: Any, **kwargs: Any) -> Any:
        if name.startswith("matplotlib"):
            raise ImportError(name)
        return real(name, *args, **kwargs)

    source = write_profile(tmp_path)
    monkeypatch.setattr(builtins, "__import__", refuse)
    result = CliRunner().invoke(main, ["roofline", str(source), "--plot", str(tmp_path / "a.png")])
    assert result.exit_code == 1
    assert "neuron-tb[plot]" in result.output
