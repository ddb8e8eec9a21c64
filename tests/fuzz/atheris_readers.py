"""Coverage-guided fuzzing of the JSON readers, where the package atheris is installed.

``python -m tests.fuzz.atheris_readers [libFuzzer options] [corpus]``, for example
``-max_total_time=60``. It ends with an error at the first input that breaks a promise.
"""

from __future__ import annotations

import gzip
import sys
import tempfile
from importlib import import_module
from pathlib import Path
from typing import Any

_READERS = ("kineto_json", "system_profile", "nrt_events", "repair", "gunzip")
_SEEDS = (
    b'{"schemaVersion":1,"baseTimeNanoseconds":1767189312000000000,"traceEvents":[{"ph":"X",'
    b'"cat":"cpu_op","name":"a","pid":1,"tid":1,"ts":1.5,"dur":2,"args":{"External id":1}}]}',
    b'[{"ph":"B","name":"C:\\q","pid":"x","tid":1,"ts":"1"},{"ph":"E","ts":NaN,"args":{"a":["b"]}},',
    b'{"trace_events":[{"name":"nc_exec_running","timestamp":1767189312000000000,"duration":5,'
    b'"nc_idx":0,"process_id":"1"}],"mem_usage":[{"timestamp":1,"usage":2}],"warnings":["x"]}',
    b'{"events":[{"event_type":"nrt_execute","phase":"start","timestamp_ns":17671893120000,'
    b'"tracking_id":1,"data":{"nc_timestamp_ns":5}},{"phase":"stop"}],"data_version":1}',
)


def main() -> None:
    """Run until libFuzzer's limits are reached."""
    try:
        atheris: Any = import_module("atheris")
    except ImportError:
        sys.exit("atheris is not installed; the hypothesis tests beside this file do not need it.")
    with atheris.instrument_imports(include=["neuron_tb"]):
        import_module("neuron_tb.converters.load")
        for reader in _READERS:
            import_module(f"neuron_tb.converters.readers.{reader}")
        target = import_module("tests.fuzz.target")
    with tempfile.TemporaryDirectory() as seeds:
        for number, seed in enumerate((*_SEEDS, gzip.compress(_SEEDS[0]))):
            Path(seeds, str(number)).write_bytes(seed)
        atheris.Setup([*sys.argv, seeds], target.read)
        atheris.Fuzz()


if __name__ == "__main__":
    main()
