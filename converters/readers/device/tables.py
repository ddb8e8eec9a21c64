"""The tables of a Neuron Explorer device profile, whatever container they came in.

Parquet: ``<Table>.parquet``, or split as ``<Table>_0.parquet``, ``<Table>_1.parquet``. JSON
(``device_profile_model_<id>.json``): one key per table. Both become Arrow tables under
Explorer's table names, with columns by name; what is absent is absent.

Format: AWS Neuron documentation, Neuron Explorer's Parquet schema, version 7.4.0, and the JSON
output of ``neuron-profile`` and ``neuron-explorer``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from neuron_tb.converters.errors import NeuronTbError
from neuron_tb.converters.model import NONE, Float64, Int64
from neuron_tb.converters.model.numbers import as_number, integer
from neuron_tb.converters.readers.device.names import profile_name, table_of
from neuron_tb.converters.readers.device.schema import NS_PER_UNIT
from neuron_tb.converters.readers.parquet_file import read_parquet

_NUMBER_NAME = re.compile(
    r"id|timestamp|duration|value|throughput|k|n|.*_(ts|ns|bytes|idx|index|percent|flops"
    r"|time|throughput|bandwidth|intensity|elements|size|timestamp|freq|id|count|rows|cols|cores)"
)
_INTEGER_TEXT = re.compile(r"-?\d{1,19}")

Loader = Callable[[], "pa.Table | None"]


class DeviceTables:
    """One device profile: its tables by name, read when they are asked for.

    ``name``: the profile's own (its directory's without ``@latest``, or its file's).
    """

    def __init__(
        self,
        name: str,
        path: Path,
        loaders: Mapping[str, Loader],
        files: Mapping[str, Sequence[Path]] | None = None,
    ) -> None:
        self.name, self.path = name, path
        self._loaders, self._files = dict(loaders), dict(files or {})
        self._tables: dict[str, pa.Table | None] = {}
        self._fields: dict[tuple[str, str], dict[str, Any]] | None = None

    @property
    def names(self) -> list[str]:
        """Every table that is there, known or not."""
        return sorted(self._loaders)

    def read(self, name: str) -> pa.Table | None:
        """All rows of a table; None when it is absent. Raises NeuronTbError when unreadable."""
        if name not in self._tables:
            loader = self._loaders.get(name)
            self._tables[name] = None if loader is None else loader()
        return self._tables[name]

    def count(self, name: str) -> int:
        """How many rows a table has, without reading it where its files say so."""
        if name in self._files and name not in self._tables:
            return sum(_read_count(file) for file in self._files[name])
        table = self.read(name)
        return 0 if table is None else len(table)

    def rows(self, name: str) -> list[dict[str, Any]]:
        """A small table as dictionaries, numbers that JSON lacks as None."""
        table = self.read(name)
        found = [] if table is None else table.to_pylist()
        return [{k: plain_value(v) for k, v in row.items()} for row in found]

    def schema_of(self, table: str, column: str) -> dict[str, Any] | None:
        """What the profile's own ``SchemaFields`` table says of a column, None for nothing."""
        if self._fields is None:
            self._fields = {
                (str(row.get("table_name")), str(row.get("field_name"))): row
                for row in self.rows("SchemaFields")
            }
        return self._fields.get((table, column))

    def unit_of(self, table: str, column: str) -> str | None:
        """The column's unit in lower case, None where the profile does not say."""
        unit = (self.schema_of(table, column) or {}).get("field_unit")
        return str(unit).strip().lower() or None if unit is not None else None

    def nanoseconds(self, name: str, table: pa.Table, *columns: str) -> tuple[Int64, str | None]:
        """The first of these columns that is there as times (NONE where there is none).

        Times are nanoseconds, or what the profile's own schema says; the second value is its
        unit where that is none that is known here, and then no row has a time.
        """
        column = next((c for c in columns if c in table.column_names), None)
        nothing = np.full(len(table), NONE, np.int64)
        if column is None:
            return nothing, None
        unit = self.unit_of(name, column) or "ns"
        scale = NS_PER_UNIT.get(unit)
        if scale is None:
            return nothing, unit
        if scale == 1:
            return integers_of(table, column), None
        values = numbers_of(table, column) * scale
        known = np.isfinite(values) & (values >= 0) & (values < 2.0**62)
        return np.where(known, np.rint(np.where(known, values, 0.0)), NONE).astype(np.int64), None


def open_parquet(path: Path) -> DeviceTables:
    """The device tables of a directory, or of one table file."""
    directory = path if path.is_dir() else path.parent
    files: dict[str, list[Path]] = {}
    for file in sorted(path.glob("*.parquet")) if path.is_dir() else [path]:
        files.setdefault(table_of(file), []).append(file)

    def loader(parts: list[Path]) -> Loader:
        return lambda: _read_parts(parts)

    absolute = directory.absolute()
    return DeviceTables(
        profile_name(absolute), path, {name: loader(parts) for name, parts in files.items()}, files
    )


def _read_parts(files: Sequence[Path]) -> pa.Table:
    try:
        return pa.concat_tables([read_parquet(f) for f in files], promote_options="permissive")
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        reason = str(error).splitlines()[0]
        raise NeuronTbError(f"{files[0]} cannot be read: {reason}") from error


def _read_count(file: Path) -> int:
    try:
        return int(pq.read_metadata(file).num_rows)
    except (pa.ArrowException, OSError) as error:
        raise NeuronTbError(f"{file} cannot be read: {str(error).splitlines()[0]}") from error


# -- columns --------------------------------------------------------------------------------


def integers_of(table: pa.Table, name: str) -> Int64:
    """A column as int64, NONE where it is null, no number, negative, or absent."""
    if name not in table.column_names:
        return np.full(len(table), NONE, np.int64)
    column = table[name]
    if pa.types.is_floating(column.type):
        values = _floats(column)
        known = np.isfinite(values) & (np.abs(values) < 2.0**63)
        found: Int64 = np.where(known, np.rint(np.where(known, values, 0.0)), NONE).astype(np.int64)
    elif pa.types.is_integer(column.type) and column.type != pa.uint64():
        filled = pc.fill_null(column.cast(pa.int64()), NONE)
        found = filled.to_numpy().astype(np.int64, copy=False)
    else:
        found = np.fromiter((integer(v) for v in column.to_pylist()), np.int64, len(table))
    return np.maximum(found, NONE)


def numbers_of(table: pa.Table, name: str) -> Float64:
    """A column as float64, NaN where it is null, no number, or absent."""
    if name not in table.column_names:
        return np.full(len(table), np.nan)
    column = table[name]
    if pa.types.is_floating(column.type) or pa.types.is_integer(column.type):
        return _floats(column)
    numbers = (as_number(v) for v in column.to_pylist())
    return np.array([np.nan if v is None else v for v in numbers], np.float64)


def _floats(column: pa.ChunkedArray) -> Float64:
    values = pc.fill_null(column.cast(pa.float64(), safe=False), float("nan"))
    found: Float64 = values.to_numpy().astype(np.float64, copy=False)
    return found


def plain_value(value: Any) -> Any:
    """A value that JSON has; None for numbers that it lacks."""
    return None if isinstance(value, float) and not np.isfinite(value) else value


def distinct(table: pa.Table, columns: list[str]) -> tuple[list[dict[str, Any]], NDArray[np.intp]]:
    """The distinct values of some columns as rows, and which of them each row of the table has."""
    present = [c for c in columns if c in table.column_names]
    code = np.zeros(len(table), np.int64)
    for name in present:
        encoded = encoded_column(table[name])
        indices = encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64)
        _, code = np.unique(code * (len(encoded.dictionary) + 1) + indices, return_inverse=True)
        code = code.reshape(-1)
    _, first, which = np.unique(code, return_index=True, return_inverse=True)
    rows = table.select(present).take(pa.array(first)).to_pylist() if present else [{}]
    return rows[: len(first)], which.reshape(-1)


def encoded_column(column: pa.ChunkedArray) -> pa.DictionaryArray:
    """A column as numbers of its distinct values; lists and structures count as their text."""
    values = column.combine_chunks()
    try:
        return pc.dictionary_encode(values, null_encoding="encode")
    except pa.ArrowException:
        texts = [None if value is None else str(value) for value in values.to_pylist()]
        return pc.dictionary_encode(pa.array(texts, pa.string()), null_encoding="encode")


def sorts(kind: pa.DataType) -> bool:
    """Whether Arrow can order values of this type."""
    checks = (pa.types.is_integer, pa.types.is_floating, pa.types.is_string)
    return any(check(kind) for check in (*checks, pa.types.is_large_string, pa.types.is_boolean))


def texts_of(table: pa.Table, name: str) -> list[str]:
    """A column as texts, "" where it is null or absent."""
    if name not in table.column_names:
        return [""] * len(table)
    return ["" if value is None else str(value) for value in table[name].to_pylist()]


def merged(start: Int64, length: Int64) -> tuple[Int64, Int64]:
    """Starts and ends of the union of intervals that are in order of start."""
    reach = np.maximum.accumulate(start + length)
    first = np.flatnonzero(np.concatenate(([True], start[1:] > reach[:-1])))
    return start[first], np.maximum.reduceat(start + length, first)


def find_ids(wanted: Int64, ids: Int64, rows: Int64) -> Int64:
    """The row of each wanted id, NONE where there is none."""
    order = np.argsort(ids, kind="stable")
    place = np.minimum(np.searchsorted(ids[order], wanted), len(ids) - 1)
    found = (ids[order][place] == wanted) & (wanted != NONE)
    return np.where(found, rows[order][place], NONE)


# -- rows of JSON ---------------------------------------------------------------------------


def table_from_rows(rows: Sequence[Mapping[str, Any]]) -> pa.Table:
    """JSON objects as a table; numbers written as text become numbers where a name asks for it."""
    names = sorted({name for row in rows for name in row})
    columns = {name: _array([row.get(name) for row in rows], name) for name in names}
    return pa.table(columns) if columns else pa.table({})


def _array(values: Sequence[Any], name: str) -> pa.Array:
    kinds = {type(v) for v in values if v is not None}
    if kinds == {str} and _NUMBER_NAME.fullmatch(name):
        values = [_as_number_if_one(v) for v in values]
        kinds = {type(v) for v in values if v is not None}
    if kinds == {int, float}:
        values, kinds = [None if v is None else float(v) for v in values], {float}
    if kinds <= {int} or kinds <= {float} or kinds <= {str} or kinds <= {bool}:
        try:
            return pa.array(values)
        except (pa.ArrowException, OverflowError):  # integers beyond 64 bits
            pass
    encode = msgspec.json.Encoder(enc_hook=str).encode
    return pa.array(
        [v if v is None or isinstance(v, str) else encode(v).decode() for v in values], pa.string()
    )


def _as_number_if_one(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    if _INTEGER_TEXT.fullmatch(value.strip()):
        return int(value)
    number = as_number(value)
    return value if number is None else number
