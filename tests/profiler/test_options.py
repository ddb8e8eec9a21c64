"""Options as the environment gives them."""

from __future__ import annotations

import pytest

from neuron_tb.profiler.options import Options, as_text, of_mapping, of_text


@pytest.mark.parametrize(
    "options",
    [
        Options(),
        Options(device="always", cuda_shims=True),
        Options(directory="/a,b=c/d", sync_start=False, explorer_seconds=2.5, quiet=True),
    ],
)
def test_text_of_options_reads_back_as_the_same(options):
    assert of_text(as_text(options)) == options


def test_a_name_alone_is_yes():
    assert of_text("cuda_shims,device=always") == Options(device="always", cuda_shims=True)


def test_unknown_names_are_listed_with_the_known_ones():
    with pytest.raises(TypeError, match="no option 'colour'; known are device, directory"):
        of_mapping({"colour": "red"})
