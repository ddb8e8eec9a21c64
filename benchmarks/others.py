"""What other programs do with the same file: ``python -m benchmarks.others NAME FILE``.

Each does the least that it can do: read the file, or write it in another form.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any


def orjson(path: Path) -> None:
    """Decode the file with orjson."""
    import_module("orjson").loads(path.read_bytes())


def torch_tb(path: Path) -> None:
    """Open the file as the PyTorch plugin for TensorBoard does, up to its list of views."""
    data_module = import_module("torch_tb_profiler.profiler.data")
    generator = import_module("torch_tb_profiler.profiler.run_generator").RunGenerator
    with tempfile.TemporaryDirectory() as cache:
        data = data_module.RunProfileData.parse("worker", 1, str(path), cache)
    generator("worker", 1, data).generate_run_profile()


def hta(path: Path) -> None:
    """Read the file into a table with HolisticTraceAnalysis."""
    import_module("hta.common.trace").parse_trace_file(str(path))


def perfetto(path: Path) -> None:
    """Decode with json and write slices with the Perfetto package's builders, no arguments."""
    module = import_module("perfetto.trace_builder.proto_builder")
    messages = import_module("perfetto.protos.perfetto.trace.perfetto_trace_pb2")
    builder = module.TraceProtoBuilder()
    for event in json.loads(path.read_bytes())["traceEvents"]:
        if event["ph"] == "X":
            _slice(builder, messages.TrackEvent, event)
    path.with_suffix(".builders.pftrace").write_bytes(builder.serialize())


def _slice(builder: Any, kinds: Any, event: dict[str, Any]) -> None:
    begin = int(event["ts"] * 1000)
    for kind, time in (
        (kinds.TYPE_SLICE_BEGIN, begin),
        (kinds.TYPE_SLICE_END, begin + int(event["dur"] * 1000)),
    ):
        packet = builder.add_packet()
        packet.timestamp = time
        packet.trusted_packet_sequence_id = 1
        packet.track_event.type = kind
        packet.track_event.track_uuid = hash((event["pid"], event["tid"])) & 0xFFFFFFFF
        if kind == kinds.TYPE_SLICE_BEGIN:
            packet.track_event.name = event["name"]


def xprof(path: Path) -> None:
    """Make XProf's overview and trace viewer from an ``.xplane.pb``, as on its first opening."""
    convert = import_module("xprof.convert.raw_to_tool_data").xspace_to_tool_data
    options = {"hosts": ["host"], "use_saved_result": False}
    for tool in ("overview_page", "trace_viewer@"):
        if convert([str(path)], tool, dict(options))[0] is None:
            sys.exit(f"XProf made no {tool} of {path}")


OTHERS: dict[str, Callable[[Path], None]] = {
    f.__name__: f for f in (orjson, torch_tb, hta, perfetto, xprof)
}

if __name__ == "__main__":
    OTHERS[sys.argv[1]](Path(sys.argv[2]))
