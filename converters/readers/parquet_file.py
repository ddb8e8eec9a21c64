"""Reading one Parquet file, which is untrusted: its size first, then its content as a whole."""

from __future__ import annotations

import inspect
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from neuron_tb.converters.readers import bounds

# pyarrow 15 and later compare the checksums of pages, where a file has them.
_CHECKED = {
    name: True
    for name in ("page_checksum_verification",)
    if name in inspect.signature(pq.ParquetFile.__init__).parameters
}


def read_parquet(file: Path) -> pa.Table:
    """All rows of a file.

    Raises NeuronTbError where its footer claims more than a file of its size may hold, and
    Arrow's exceptions where it is damaged.
    """
    with pq.ParquetFile(file, **_CHECKED) as parquet:
        meta = parquet.metadata
        groups = (meta.row_group(number) for number in range(meta.num_row_groups))
        unpacked = sum(max(group.total_byte_size, 0) for group in groups)
        bounds.check_table(file, meta.num_rows, meta.num_columns, unpacked)
        table = parquet.read()
    table.validate(full=True)  # text that is not UTF-8, offsets that point outside
    return table
