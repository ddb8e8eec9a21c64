"""Instance types, chips, and published peaks."""

from __future__ import annotations

import pytest

from neuron_tb.converters.errors import NeuronTbError
from neuron_tb.converters.model.hardware import INSTANCE_TYPES, chip_of, peaks_per_logical_core


def test_a_logical_core_of_trainium2_joins_two_of_eight_physical_ones() -> None:
    peaks = peaks_per_logical_core(chip_of("trn2.48xlarge"))
    assert peaks is not None
    assert peaks.bf16_teraflops == pytest.approx(667 / 4)
    assert peaks.hbm_gigabytes_per_second == pytest.approx(2900 / 4)
    assert peaks.hbm_bytes == 24 << 30


def test_a_core_known_to_be_one_physical_core_has_an_eighth() -> None:
    peaks = peaks_per_logical_core(chip_of("trn2.48xlarge"), physical_cores=1)
    assert peaks is not None
    assert peaks.bf16_teraflops == pytest.approx(667 / 8)


@pytest.mark.parametrize(
    ("kind", "name"), [("trn1.32xlarge", "AWS Trainium"), ("inf2.xlarge", "AWS Inferentia2")]
)
def test_a_chip_of_two_cores_has_no_joined_ones(kind: str, name: str) -> None:
    chip = chip_of(kind)
    peaks = peaks_per_logical_core(chip)
    assert chip.name == name
    assert peaks is not None
    assert peaks.bf16_teraflops == 95
    assert peaks.hbm_gigabytes_per_second == pytest.approx(820 * 2**30 / 2 / 1e9)


def test_without_a_published_default_there_are_no_peaks() -> None:
    chip = chip_of("Trn3 Gen1 UltraServer")
    assert peaks_per_logical_core(chip) is None
    joined = peaks_per_logical_core(chip, physical_cores=2)
    assert joined is not None
    assert joined.bf16_teraflops == pytest.approx(671 / 4)


def test_every_figure_names_its_source() -> None:
    for kind in INSTANCE_TYPES:
        peaks = peaks_per_logical_core(chip_of(kind), physical_cores=1)
        assert peaks is not None
        assert "AWS" in peaks.source


def test_letter_case_does_not_matter() -> None:
    assert chip_of(" TRN2.48XLARGE ") is chip_of("trn2.48xlarge")


def test_an_unknown_type_is_a_sentence_that_lists_the_known_ones() -> None:
    with pytest.raises(NeuronTbError) as error:
        chip_of("p5.48xlarge")
    sentence = str(error.value)
    assert "p5.48xlarge" in sentence
    assert all(kind in sentence for kind in INSTANCE_TYPES)
