"""Device profiles of several ranks: converting apart and joining changes nothing."""

from __future__ import annotations

from pathlib import Path

from neuron_tb.checks import xprof as xprof_check
from neuron_tb.converters.convert import convert
from neuron_tb.converters.load import load
from neuron_tb.converters.model import Role
from neuron_tb.converters.running.merge import merge
from tests import decoded
from tests.cluster import write_cluster
from tests.device_makers import span, write_tables
from tests.placing.test_device_profiles import facts
from tests.running.test_merge import RUN, apart, assert_same


def ranks_with_profiles(root: Path) -> Path:
    """Two ranks of one host: the first one's profile can be placed, the second one's cannot."""
    for number, directory in enumerate(write_cluster(root, hosts=1)):
        trace = load(directory)
        work = trace.slices.take(trace.roles(Role.KERNEL))
        length = int(work.duration_ns[0]) if number == 0 else 17
        info = [
            {"execution_index": 0, "execution_start_ts": 5, "execution_end_ts": 5 + length},
        ]
        active = [span(5, length // 2, engine="tensor"), span(5, length, engine="vector")]
        name = f"{directory.name}_nc_{number}_session_1@latest"
        write_tables(directory / name, {"ActiveTime": active, "ExecutionInfo": info})
    return root


def test_ranks_with_device_profiles_may_be_converted_apart(tmp_path: Path) -> None:
    root = ranks_with_profiles(tmp_path / "in")
    placed = [profile["placed"] for profile in facts(load(root))]
    assert placed == ["execution_order", None]
    convert(root, out=tmp_path / "together", run=RUN)
    together = decoded.run(tmp_path / "together", RUN)
    convert(root, out=tmp_path / "workers", run=RUN, workers=2)
    assert_same(decoded.run(tmp_path / "workers", RUN), together)
    merge(*apart(root, tmp_path / "apart"), out=tmp_path / "merged", run=RUN)
    assert_same(decoded.run(tmp_path / "merged", RUN), together)
    report = xprof_check.check(tmp_path / "merged" / "plugins" / "profile" / RUN)
    assert report.passed, report.problems
