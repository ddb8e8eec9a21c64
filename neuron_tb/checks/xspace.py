"""XSpace, the message inside ``.xplane.pb``, as protobuf classes built at run time.

The descriptor stands in a pool of its own, under a package of its own: nothing generated has to
match the installed protobuf, and nothing collides with TensorFlow's copy of the same messages
(package names are not on the wire). Field numbers: ``xplane.proto`` of openxla/xla
(tsl/profiler/protobuf).
"""

from __future__ import annotations

from functools import cache
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

_PACKAGE = "neuron_tb.xspace"

_Field = descriptor_pb2.FieldDescriptorProto

_SCALARS = {
    "int64": _Field.TYPE_INT64,
    "uint64": _Field.TYPE_UINT64,
    "double": _Field.TYPE_DOUBLE,
    "string": _Field.TYPE_STRING,
    "bytes": _Field.TYPE_BYTES,
}

_MESSAGES: dict[str, tuple[tuple[int, str, str], ...]] = {
    "XSpace": (
        (1, "planes", "repeated XPlane"),
        (2, "errors", "repeated string"),
        (3, "warnings", "repeated string"),
        (4, "hostnames", "repeated string"),
    ),
    "XPlane": (
        (1, "id", "int64"),
        (2, "name", "string"),
        (3, "lines", "repeated XLine"),
        (4, "event_metadata", "map XEventMetadata"),
        (5, "stat_metadata", "map XStatMetadata"),
        (6, "stats", "repeated XStat"),
    ),
    "XLine": (
        (1, "id", "int64"),
        (2, "name", "string"),
        (3, "timestamp_ns", "int64"),
        (4, "events", "repeated XEvent"),
        (9, "duration_ps", "int64"),
        (10, "display_id", "int64"),
        (11, "display_name", "string"),
    ),
    "XEvent": (
        (1, "metadata_id", "int64"),
        (2, "offset_ps", "oneof int64"),
        (3, "duration_ps", "int64"),
        (4, "stats", "repeated XStat"),
        (5, "num_occurrences", "oneof int64"),
    ),
    "XStat": (
        (1, "metadata_id", "int64"),
        (2, "double_value", "oneof double"),
        (3, "uint64_value", "oneof uint64"),
        (4, "int64_value", "oneof int64"),
        (5, "str_value", "oneof string"),
        (6, "bytes_value", "oneof bytes"),
        (7, "ref_value", "oneof uint64"),
    ),
    "XEventMetadata": (
        (1, "id", "int64"),
        (2, "name", "string"),
        (3, "metadata", "bytes"),
        (4, "display_name", "string"),
        (5, "stats", "repeated XStat"),
        (6, "child_id", "repeated int64"),
    ),
    "XStatMetadata": (
        (1, "id", "int64"),
        (2, "name", "string"),
        (3, "description", "string"),
    ),
}


@cache
def message_class(name: str = "XSpace") -> Any:
    """The class of one message; it parses and serializes like generated code."""
    return message_factory.GetMessageClass(_pool().FindMessageTypeByName(f"{_PACKAGE}.{name}"))


@cache
def _pool() -> Any:
    file = descriptor_pb2.FileDescriptorProto(
        name="neuron_tb/xspace.proto", package=_PACKAGE, syntax="proto3"
    )
    for name, members in _MESSAGES.items():
        message = file.message_type.add(name=name)
        for number, label, kind in members:
            _add_field(message, number, label, kind)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return pool


def _add_field(message: Any, number: int, label: str, kind: str) -> None:
    modifier, _, base = kind.rpartition(" ")
    field = message.field.add(name=label, number=number, label=_Field.LABEL_OPTIONAL)
    if modifier in ("repeated", "map"):
        field.label = _Field.LABEL_REPEATED
    if modifier == "oneof":
        if not message.oneof_decl:
            message.oneof_decl.add(name="value")
        field.oneof_index = 0
    if base in _SCALARS:
        field.type = _SCALARS[base]
        return
    field.type = _Field.TYPE_MESSAGE
    field.type_name = f".{_PACKAGE}.{base}"
    if modifier == "map":
        entry = message.nested_type.add(name=_entry_name(label))
        entry.options.map_entry = True
        _add_field(entry, 1, "key", "int64")
        _add_field(entry, 2, "value", base)
        field.type_name = f".{_PACKAGE}.{message.name}.{entry.name}"


def _entry_name(label: str) -> str:
    return "".join(part.capitalize() for part in label.split("_")) + "Entry"
