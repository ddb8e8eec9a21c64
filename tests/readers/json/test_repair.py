"""Damaged JSON: what is mended, what is lost, and that both are said."""

from __future__ import annotations

import contextlib
import gzip
import json
import re
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import neuron_tb
from neuron_tb import NeuronTbError
from neuron_tb.converters.readers.json import bounds
from neuron_tb.converters.readers.json.document import Document, open_document
from tests.makers import BASE_NS, complete, operator, system_row

BEFORE = operator("aten::before", 1, 2, 1)
AFTER = operator("aten::after", 5, 2, 2)


def text_of(*middle: str, head: str = "", tail: str = "") -> str:
    """A trace with these texts as events between two good ones."""
    events = ",\n".join([json.dumps(BEFORE), *middle, json.dumps(AFTER)])
    base = f'"baseTimeNanoseconds": {BASE_NS}, '
    return f'{{"schemaVersion": 1, {base}{head}"traceEvents": [\n{events}\n]{tail}}}'


def read(tmp_path: Path, text: str | bytes, name: str = "trace.json") -> Document:
    path = tmp_path / name
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return open_document(path)


def events(document: Document) -> list[Any]:
    raw = document.data if document.array else bytes(document.keys["traceEvents"])
    found: list[Any] = json.loads(raw)
    return found


def named(name: str) -> str:
    """An event whose name is this raw text between quotes."""
    event = '{"ph": "X", "cat": "cpu_op", "name": "#", "pid": 1, "tid": 1, "ts": 3, "dur": 1}'
    return event.replace("#", name)


def kinds(document: Document) -> dict[str, int]:
    return {finding.kind: finding.count for finding in document.findings}


# -- strings ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("raw", "name", "count"),
    [
        (r"C:\Users\me", r"C:\Users\me", 2),
        (r"\\host\share", "\\host\\share", 1),
        (r"D:\work\x\y.py(3): f", r"D:\work\x\y.py(3): f", 3),
        (r"\d+\s*", r"\d+\s*", 2),
        (r"C:\users\u12", r"C:\users\u12", 2),
        (r"tab\tnew\nx\q", "tab\tnew\nx\\q", 1),
        ("C:\\odd\\", "C:\\odd\\", 2),
        ("C:\\new\\", "C:\new\\", 1),
    ],
)
def test_single_backslashes_are_doubled_and_valid_escapes_left(
    tmp_path: Path, raw: str, name: str, count: int
) -> None:
    document = read(tmp_path, text_of(named(raw)))
    assert [e["name"] for e in events(document)] == ["aten::before", name, "aten::after"]
    assert kinds(document) == {"escape_repaired": count}


@pytest.mark.parametrize(
    "name",
    [
        '{"device": "neuron", "dtype": "bf16"}(12): run',
        '{"device": "neuron", "dtype": "bf16"}',
        'call("x")',
        '"quoted"',
        'f("a", "b")',
        'dict["name"]: "x", y',
        '[{"name": "x"}]: run',
        '{"a": {"b": [1, "c"]}} -> {"d": "e"}',
    ],
)
def test_bare_quotes_stay_part_of_the_name(tmp_path: Path, name: str) -> None:
    document = read(tmp_path, text_of(named(name)))
    assert [e["name"] for e in events(document)] == ["aten::before", name, "aten::after"]
    assert kinds(document) == {"quote_repaired": name.count('"')}


def test_bare_quotes_in_arguments_stay_part_of_the_argument(tmp_path: Path) -> None:
    raw = (
        '{"ph": "X", "name": "f", "pid": 1, "tid": 1, "ts": 3, "dur": 1, '
        '"args": {"Call stack": "run("x"); go", "Input type": ["a "b" c", "d"], "n": 1}}'
    )
    document = read(tmp_path, text_of(raw))
    assert events(document)[1]["args"] == {
        "Call stack": 'run("x"); go',
        "Input type": ['a "b" c', "d"],
        "n": 1,
    }


@pytest.mark.parametrize("byte", [*range(0x20)])
def test_raw_control_bytes_are_escaped(tmp_path: Path, byte: int) -> None:
    name = f"a{chr(byte)}b"
    document = read(tmp_path, text_of(named(name)))
    assert events(document)[1]["name"] == name
    assert kinds(document) == {"control_repaired": 1}


@pytest.mark.parametrize("raw", [b"\xff", b"\xc3", b"\xed\xa0\x80", b"\xf0\x9f\x98", b"\xc0\x80"])
def test_invalid_utf8_is_replaced_and_counted(tmp_path: Path, raw: bytes) -> None:
    text = text_of(named("a#b")).encode().replace(b"#", raw)
    document = read(tmp_path, text)
    assert events(document)[1]["name"] == "a" + "\ufffd" * len(raw) + "b"
    assert kinds(document) == {"utf8_repaired": len(raw)}
    place = text.index(raw)
    assert [f.where for f in document.findings] == [f"trace.json, byte {place}"]


@pytest.mark.parametrize("raw", [r"\ud800", r"\udc00x", r"\ud83d\u0041", r"\uDFFF"])
def test_halves_of_surrogate_pairs_are_replaced(tmp_path: Path, raw: str) -> None:
    document = read(tmp_path, text_of(named(raw)))
    assert events(document)[1]["name"].startswith("\ufffd")
    assert kinds(document) == {"surrogate_repaired": 1}


def test_whole_surrogate_pairs_beside_damage_are_left(tmp_path: Path) -> None:
    document = read(tmp_path, text_of(named(r"\ud83d\ude00 \q")))
    assert events(document)[1]["name"] == "\U0001f600 \\q"
    assert kinds(document) == {"escape_repaired": 1}


# -- values ----------------------------------------------------------------------------------------

SPELLINGS = [
    *("NaN", "nan", "NAN", "-nan", "+nan", "nan(ind)", "nan(0x8000)", "1.#QNAN", "-1.#IND"),
    *("Infinity", "-Infinity", "+Infinity", "inf", "-inf", "Inf", "INF", "+inf", "1.#INF"),
    *("N/A", "n/a", "None", "undefined"),
]


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_values_that_are_no_number_are_dropped_and_their_event_kept(
    tmp_path: Path, spelling: str
) -> None:
    raw = (
        '{"ph": "X", "name": "NaN: inf", "pid": 1, "tid": 1, "ts": 3, "dur": #, '
        '"args": {"list": [1, #], "last": #}}'
    ).replace("#", spelling)
    document = read(tmp_path, text_of(raw))
    event = events(document)[1]
    assert event["name"] == "NaN: inf"
    assert event["dur"] is None
    assert event["args"] == {"list": [1, None], "last": None}
    assert kinds(document) == {"not_a_number": 3}


def test_an_unknown_word_as_value_costs_its_event_and_is_named(tmp_path: Path) -> None:
    raw = '{"ph": "X", "name": "f", "pid": 1, "tid": 1, "ts": 12x3, "dur": 1}'
    text = text_of(raw)
    document = read(tmp_path, text)
    assert events(document) == [BEFORE, AFTER]
    (finding,) = document.findings
    assert finding.kind == "bytes_lost"
    start, end = map(int, re.findall(r"bytes (\d+)-(\d+)", finding.where or "")[0])
    assert text[start:end].strip(" ,\n") == raw


@pytest.mark.parametrize(
    "raw",
    [
        '{"ph": "X", "cat": "cpu_op"x, "name": "f", "pid": 1, "tid": 1, "ts": 3, "dur": 1}',
        '{"ph": "X", "cat": "cpu_op, "name": "f", "pid": 1, "tid": 1, "ts": 3, "dur": 1}',
        '{"ph": "X", "cat": "cpu_op" "name": "f", "pid": 1, "tid": 1, "ts": 3, "dur": 1}',
        '{"ph": "X", "name": "f", "args": {"a": "b"x}, "pid": 1, "tid": 1, "ts": 3, "dur": 1}',
        '{"ph": "X", "name": "f", "pid": 1, "tid": 1, "ts": , "dur": 1}',
    ],
)
def test_no_field_is_taken_for_a_part_of_a_string(tmp_path: Path, raw: str) -> None:
    document = read(tmp_path, text_of(raw))
    assert events(document) == [BEFORE, AFTER]
    assert kinds(document) == {"bytes_lost": 1}


def test_alike_damage_in_many_events_is_counted_in_full(tmp_path: Path) -> None:
    rows = [
        complete("cpu_op", f"#{n}", n, 1, args={"n": n, "path": "D:!x", "value": "?"})
        for n in range(3000)
    ]
    text = json.dumps(rows).replace("D:!x", "D:\\x").replace('"?"', "NaN").replace("#", "\x02")
    document = read(tmp_path, text)
    found = events(document)
    assert [e["name"] for e in found] == [f"\x02{n}" for n in range(3000)]
    assert found[2999]["args"] == {"n": 2999, "path": "D:\\x", "value": None}
    counts = dict.fromkeys(("escape_repaired", "not_a_number", "control_repaired"), 3000)
    assert kinds(document) == counts
    for finding in document.findings:
        assert "event 1" in (finding.where or "")


@pytest.mark.parametrize(
    "raw",
    [
        '{"ph": "X", "name": "f", "ts": 3, "dur": 1,}',
        '{"ph": "X", "name": "f", "ts": 3, "dur": 1, "args": {"a": 1, }}',
        '{"ph": "X", "name": "f", "ts": 3, "dur": 1, "args": {"a": [1, 2,\n]}}',
    ],
)
def test_trailing_commas_are_ignored(tmp_path: Path, raw: str) -> None:
    document = read(tmp_path, text_of(raw))
    assert [e["name"] for e in events(document)] == ["aten::before", "f", "aten::after"]
    assert kinds(document) == {"trailing_comma": 1}


def test_trailing_commas_of_the_list_and_the_document_are_ignored(tmp_path: Path) -> None:
    text = text_of(tail=",").replace("\n]", ",\n]")
    document = read(tmp_path, text)
    assert events(document) == [BEFORE, AFTER]
    assert kinds(document) == {"trailing_comma": 2}


def test_damaged_top_level_values_are_mended_too(tmp_path: Path) -> None:
    head = '"path": "C:\\Users\\me", "memory": NaN, "distributedInfo": {"rank": 3,}, '
    document = read(tmp_path, text_of(head=head))
    decoded = document.decoded("traceEvents")
    assert decoded["path"] == "C:\\Users\\me"
    assert decoded["memory"] is None
    assert decoded["distributedInfo"] == {"rank": 3}
    assert decoded["baseTimeNanoseconds"] == BASE_NS
    assert len(events(document)) == 2


# -- ends ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("ending", ["", ",", ",\n", "\n", "]", "\n],"])
def test_text_without_its_last_brackets_is_read_whole(tmp_path: Path, ending: str) -> None:
    text = text_of()[: -len("\n]}")] + ending
    document = read(tmp_path, text)
    assert events(document) == [BEFORE, AFTER]
    assert kinds(document) == {"json_unclosed": 1}


def test_a_list_without_its_last_bracket_is_read_whole(tmp_path: Path) -> None:
    document = read(tmp_path, "[\n" + json.dumps(BEFORE) + ",\n" + json.dumps(AFTER) + ",\n")
    assert document.array
    assert events(document) == [BEFORE, AFTER]
    assert kinds(document) == {"json_unclosed": 1}


def test_text_cut_at_any_byte_gives_every_whole_event(tmp_path: Path) -> None:
    text = text_of(named("x"))
    ends = [m.end() for m in re.finditer(r"\}(?=,\n|\n\])", text)]
    for cut in range(ends[0], len(text)):
        document = read(tmp_path, text[:cut])
        whole = sum(end <= cut for end in ends)
        assert len(events(document)) == whole, text[:cut]
        lost = text[ends[whole - 1] : cut].strip(" ,\n]}")
        assert set(kinds(document)) == {"json_truncated" if lost else "json_unclosed"}


def test_what_is_lost_at_the_end_is_said_in_bytes(tmp_path: Path) -> None:
    text = text_of(named("x"))
    cut = text.index('"aten::after"')
    start = text.rindex("{", 0, cut)
    (finding,) = read(tmp_path, text[:cut]).findings
    assert finding.where == f"trace.json, bytes {start}-{cut}, after event 2"
    assert f"last {cut - start} bytes" in finding.message


@pytest.mark.parametrize(
    "after", ["x", "\0\0\0", "]", "}", "}}]", "-- end of log --", '"a"', "\ufeff!"]
)
def test_text_after_the_end_is_ignored_and_named(tmp_path: Path, after: str) -> None:
    text = text_of()
    document = read(tmp_path, text + "\n" + after)
    assert events(document) == [BEFORE, AFTER]
    assert set(kinds(document)) == {"text_after_end"}


def test_line_ends_and_byte_order_mark_do_no_harm(tmp_path: Path) -> None:
    text = "\ufeff" + text_of(named("x")).replace("\n", "\r\n")
    document = read(tmp_path, text)
    assert len(events(document)) == 3
    assert kinds(document) == {"byte_order_mark": 1}


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be"])
def test_utf16_is_read_as_that(tmp_path: Path, encoding: str) -> None:
    document = read(tmp_path, text_of(named("Δ")).encode(encoding))
    assert events(document)[1]["name"] == "Δ"
    assert kinds(document) == {"utf16": 1}


# -- several texts in one file ---------------------------------------------------------------------


def test_documents_one_after_the_other_are_all_read(tmp_path: Path) -> None:
    document = read(tmp_path, text_of() + "\n" + text_of(named("x")))
    assert len(events(document)) == 5
    assert kinds(document) == {"several_documents": 2}


def test_events_of_another_base_time_keep_their_absolute_time(tmp_path: Path) -> None:
    other = text_of().replace(str(BASE_NS), str(BASE_NS + 1_000_000_001))
    document = read(tmp_path, text_of() + other)
    assert [e["ts"] for e in events(document)] == [1, 5, 1000001.001, 1000005.001]
    assert set(kinds(document)) == {"several_documents", "base_time_differs"}


def test_a_line_per_event_is_read(tmp_path: Path) -> None:
    document = read(tmp_path, json.dumps(BEFORE) + "\n" + json.dumps(AFTER) + "\n")
    assert events(document) == [BEFORE, AFTER]


def test_two_event_lists_of_a_document_are_both_read(tmp_path: Path) -> None:
    one, two = json.dumps([BEFORE]), json.dumps([AFTER])
    text = f'{{"traceEvents": {one}, "traceEvents": {two}}}'
    document = read(tmp_path, text)
    assert events(document) == [BEFORE, AFTER]
    assert kinds(document) == {"several_event_lists": 1}


@pytest.mark.parametrize("block", [64, 300, 1000, 4096])
def test_two_writers_in_one_file_are_recognised(tmp_path: Path, block: int) -> None:
    def trace(pid: int) -> bytes:
        rows = [complete("cpu_op", f"op{n}", n, 1, pid=pid, tid=pid) for n in range(100)]
        head = {"schemaVersion": 1, "distributedInfo": {"rank": pid}}
        return json.dumps({**head, "baseTimeNanoseconds": BASE_NS, "traceEvents": rows}).encode()

    one, two = trace(1), trace(2)
    mixed = b"".join(
        one[at : at + block] + two[at : at + block] for at in range(0, len(one), block)
    )
    document = read(tmp_path, mixed)
    assert "several_writers" in kinds(document)
    whole = sum(json.dumps(row).encode() in mixed for row in json.loads(one)["traceEvents"])
    whole += sum(json.dumps(row).encode() in mixed for row in json.loads(two)["traceEvents"])
    assert len(events(document)) >= whole
    assert whole > 10 or block < 1000


# -- gzip ------------------------------------------------------------------------------------------


def many(count: int = 2000) -> str:
    return text_of(*(json.dumps(operator(f"op {n}", n + 10, 1, n)) for n in range(count)))


def test_gzip_is_told_by_content_not_by_name(tmp_path: Path) -> None:
    packed = gzip.compress(text_of().encode())
    assert events(read(tmp_path, packed, "trace.json")) == [BEFORE, AFTER]
    assert events(read(tmp_path, text_of(), "trace.json.gz")) == [BEFORE, AFTER]
    assert events(read(tmp_path, gzip.compress(packed), "t.gz")) == [BEFORE, AFTER]


def test_gzip_members_are_joined(tmp_path: Path) -> None:
    text = text_of(named("x")).encode()
    packed = b"".join(gzip.compress(text[at : at + 100]) for at in range(0, len(text), 100))
    document = read(tmp_path, packed + b"\0" * 512)
    assert len(events(document)) == 3
    assert kinds(document) == {"gzip_members": 1}


@pytest.mark.parametrize("share", [0.1, 0.5, 0.9, 0.999])
def test_cut_gzip_gives_every_whole_event_before_the_cut(tmp_path: Path, share: float) -> None:
    text = many()
    packed = gzip.compress(text.encode())
    document = read(tmp_path, packed[: int(len(packed) * share)])
    found = events(document)
    assert found == json.loads(text)["traceEvents"][: len(found)]
    assert len(found) > 2000 * share * 0.5
    assert "gzip_truncated" in kinds(document)


def test_gzip_that_lacks_only_its_checksum_loses_no_event(tmp_path: Path) -> None:
    document = read(tmp_path, gzip.compress(many().encode())[:-5])
    assert len(events(document)) == 2002
    assert kinds(document) == {"gzip_truncated": 1}


def test_gzip_with_a_wrong_checksum_is_read_and_said(tmp_path: Path) -> None:
    packed = bytearray(gzip.compress(many().encode()))
    packed[-6] ^= 1
    document = read(tmp_path, bytes(packed))
    assert len(events(document)) == 2002
    assert kinds(document) == {"gzip_checksum": 1}


def test_damage_inside_gzip_loses_what_follows_in_that_member_only(tmp_path: Path) -> None:
    text = many()
    half = len(text) // 2
    first = bytearray(gzip.compress(text[:half].encode()))
    first[len(first) // 2 :] = b"\xff" * (len(first) - len(first) // 2)
    document = read(tmp_path, bytes(first) + gzip.compress(text[half:].encode()))
    assert len(events(document)) > 1300
    assert events(document)[-1] == AFTER
    assert "gzip_damaged" in kinds(document)


def test_gzip_of_nothing_readable_is_refused_in_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(NeuronTbError, match="nothing in it can be unpacked"):
        read(tmp_path, gzip.compress(text_of().encode())[:12])


def test_what_unpacks_to_too_much_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    packed = gzip.compress(b"[" + b" " * 3_000_000 + b"]")
    monkeypatch.setattr(bounds, "FREE_SIZE", 1_000_000)
    with pytest.raises(NeuronTbError, match="--max-size"):
        read(tmp_path, packed)
    monkeypatch.setattr(bounds, "MAX_RATIO", 2000)
    assert read(tmp_path, packed).array
    monkeypatch.setattr(bounds, "MAX_SIZE", 2_000_000)
    with pytest.raises(NeuronTbError, match="--max-size"):
        read(tmp_path, packed)
    with pytest.raises(NeuronTbError, match="--max-size"):
        read(tmp_path, b" " * 2_000_001)


def test_allowing_a_size_raises_the_ratio_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bounds, "FREE_SIZE", 1000)
    monkeypatch.setattr(bounds, "MAX_SIZE", 1000)
    packed = gzip.compress(b"[" + b" " * 3_000_000 + b"]")
    with bounds.allowed(3_000_002):
        assert read(tmp_path, packed).array
    with pytest.raises(NeuronTbError, match="--max-size"):
        read(tmp_path, packed)


# -- losses ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "junk",
    [
        "garbage",
        '"',
        "{",
        "}",
        "[",
        "]",
        "{{",
        '{"',
        '"a": ',
        "[[[",
        "\0" * 4096,
        "}]",
        "\\",
        "null{",
    ],
)
def test_junk_between_events_costs_no_event(tmp_path: Path, junk: str) -> None:
    text = text_of("#").replace("#,\n", junk + "\n")
    document = read(tmp_path, text)
    found = [e for e in events(document) if isinstance(e, dict) and e]
    assert found == [BEFORE, AFTER]
    assert document.findings


@pytest.mark.parametrize("separator", ["", "\n", ",,", ", ,\n,"])
def test_missing_and_repeated_commas_are_no_loss(tmp_path: Path, separator: str) -> None:
    text = text_of().replace(",\n{", separator + "{")
    document = read(tmp_path, text)
    assert events(document) == [BEFORE, AFTER]
    assert set(kinds(document)) <= {"missing_comma", "repeated_comma"}
    assert document.findings


def test_an_event_that_swallowed_others_gives_them_back(tmp_path: Path) -> None:
    text = text_of('{"ph": "X", "name": "x", "args": [' + named("inner"))
    document = read(tmp_path, text)
    assert [e["name"] for e in events(document)] == ["aten::before", "inner", "aten::after"]
    assert kinds(document)["bytes_lost"] >= 1


def test_unreadable_base_time_gives_relative_times_and_a_finding(tmp_path: Path) -> None:
    for damaged in (text_of().replace(str(BASE_NS), "17593x0"), "{" + text_of()[60:]):
        path = tmp_path / "trace.json"
        path.write_text(damaged)
        trace = neuron_tb.load(path)
        assert trace.clock.kind.name == "RELATIVE"
        assert trace.slices.start_ns.tolist() == [1000, 5000]


def test_a_lost_base_time_is_named(tmp_path: Path) -> None:
    document = read(tmp_path, text_of().replace(str(BASE_NS), "17593x0"))
    assert kinds(document)["base_time_unreadable"] == 1


def test_a_base_time_in_a_damaged_head_is_still_read(tmp_path: Path) -> None:
    text = text_of(head='"distributedInfo": {"rank": 0, "x": y z}, ').replace("{", "{?", 1)
    document = read(tmp_path, text)
    assert document.decoded("traceEvents")["baseTimeNanoseconds"] == BASE_NS
    assert len(events(document)) == 2


def test_a_damaged_key_of_the_event_list_is_no_loss(tmp_path: Path) -> None:
    document = read(tmp_path, text_of().replace("traceEvents", "traceEve-ts"))
    assert events(document) == [BEFORE, AFTER]
    assert kinds(document) == {"event_list_renamed": 1}


def test_many_losses_have_a_range_each_and_the_rest_one_together(tmp_path: Path) -> None:
    text = "[" + ",\n".join(json.dumps(BEFORE) + ",\n{x}" for _ in range(300)) + "]"
    document = read(tmp_path, text)
    lost = [f for f in document.findings if f.kind == "bytes_lost"]
    assert len(lost) == 201
    assert sum(f.count for f in lost) == 300
    assert "100 more places" in lost[-1].message


def test_damage_in_a_system_profile_is_mended_too(tmp_path: Path) -> None:
    rows = [system_row(f"nrta_execute_schedule {n}", n, 1, nc_idx=0) for n in range(5)]
    text = json.dumps({"trace_events": rows, "mem_usage": [{"timestamp": BASE_NS, "usage": 7}]})
    broken = text.replace('schedule 2"', 'sched\\ule "2""').replace('"usage": 7', '"usage": 7,')
    document = read(tmp_path, broken)
    found = json.loads(bytes(document.keys["trace_events"]))
    assert found[2]["name"] == 'nrta_execute_sched\\ule "2"'
    assert found[:2] + found[3:] == rows[:2] + rows[3:]
    assert document.decoded("trace_events")["mem_usage"] == [{"timestamp": BASE_NS, "usage": 7}]


def test_damage_in_a_runtime_event_dump_costs_one_event(tmp_path: Path) -> None:
    rows = [
        {"event_type": "nrt_execute", "phase": "start", "timestamp_ns": BASE_NS + n, "nc_idx": 0}
        for n in range(5)
    ]
    text = json.dumps({"data_version": 1, "events": rows}).replace(f"{BASE_NS + 2}", "?")
    document = read(tmp_path, text)
    assert json.loads(bytes(document.keys["events"])) == rows[:2] + rows[3:]


def test_findings_reach_the_trace(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    text = text_of(named("C:\\Users"))
    path.write_text(text)
    trace = neuron_tb.load(path)
    (finding,) = [f for f in trace.findings if f.kind == "escape_repaired"]
    assert finding.where == f"trace.json, byte {text.index(chr(92))} (line 3), event 2"


@pytest.mark.parametrize(
    ("file", "names", "found"),
    [
        (
            "windows_backslash.json",
            ["C:\\Users\\me\train.py(12): step", "aten::add"],
            "escape_repaired",
        ),
        (
            "unescaped_quote.json",
            ["aten::mm", '{"device": "neuron", "dtype": "bf16"}(12): run', "aten::add"],
            "quote_repaired",
        ),
        ("control_char.json", ["|||S(1): \x01<module>", "aten::add"], "control_repaired"),
        ("nan_inf.json", ["aten::add"], "not_a_number"),
        ("open_array.json", ["aten::mm", "aten::add"], "json_unclosed"),
        ("truncated.json.gz", ["aten::linear"] * 1319, "json_truncated"),
    ],
)
def test_damaged_files_of_the_collection_open(
    cases: Path, file: str, names: list[str], found: str
) -> None:
    trace = neuron_tb.load(cases / "odd" / file)
    assert [trace.strings[name] for name in trace.slices.name] == names
    assert trace.findings.of_kind(found)


# -- refused ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        "{",
        "[",
        '{"traceEvents": [',
        '{"traceEvents": [{"ph": "X", "na',
        "[[[[[[",
        '{"a": 1, b}',
        "[1, 2",
    ],
)
def test_damaged_text_without_an_event_is_refused_in_one_sentence(
    tmp_path: Path, text: str
) -> None:
    path = tmp_path / "trace.json"
    path.write_text(text)
    with pytest.raises(NeuronTbError) as refused:
        neuron_tb.load(path)
    assert str(refused.value).count("\n") == 0


# -- hostile texts ---------------------------------------------------------------------------------

HOSTILE = {
    "nested arrays": "[" * 1_000_000,
    "nested objects": '{"a":' * 200_000,
    "nested events": '{"ph":' * 160_000,
    "events inside events": '{"ph":"X","ts":1,"args":' * 40_000,
    "event heads": '[{"ph":"X","name":"' * 50_000,
    "quotes": '[{"ph":"X","ts":1,"name":"' + '"' * 1_000_000,
    "quotes and commas": '[{"ph":"X","ts":1,"name":"' + '","' * 330_000,
    "keys": '[{"ph":"X","ts":1,"name":"' + '","ph":"' * 125_000,
    "backslashes": '[{"ph":"X","ts":1,"name":"' + "\\" * 1_000_000,
    "backslashes and quotes": '[{"ph":"X","ts":1,"name":"' + '\\q","ph":' * 100_000,
    "lists": '{"traceEvents":[],' + '"traceEvents":[],' * 60_000,
    "documents": '{"traceEvents":[]}' * 55_000,
    "braces": "{}" * 500_000,
    "anchors": '{"' * 500_000,
    "open lists": '"traceEvents":[' * 66_000,
    "commas": "[" + "," * 1_000_000,
    "numbers": "[" + "1" * 1_000_000,
    "nan": '[{"ph":"X","ts":1,"a":' + "[nan," * 200_000,
    "spaces": "{" + " " * 1_000_000,
    "unclosed strings": '[{"ph":"X","ts":1,"a":"' * 45_000,
    "bases": '{"baseTimeNanoseconds":1,"traceEvents":[{"ph":"M"}]}' * 20_000,
}


@pytest.mark.parametrize("kind", HOSTILE)
def test_no_text_of_a_megabyte_takes_long(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "trace.json"
    path.write_text(HOSTILE[kind])
    started = time.process_time()
    with contextlib.suppress(NeuronTbError):
        neuron_tb.load(path)
    assert time.process_time() - started < 5


# -- properties ------------------------------------------------------------------------------------

NAMES = st.text(
    st.characters(exclude_characters='"\\', exclude_categories=["Cs", "Cc"]),
    min_size=1,
    max_size=30,
)


@settings(max_examples=60, deadline=None)
@given(st.lists(NAMES, min_size=1, max_size=8), st.data())
def test_damage_in_one_event_leaves_the_others_as_they_are(
    tmp_path_factory: pytest.TempPathFactory, names: list[str], data: st.DataObject
) -> None:
    rows = [operator(f"{name}#{n}", n, 1, n) for n, name in enumerate(names)]
    victim = data.draw(st.integers(0, len(rows) - 1))
    parts = [json.dumps(row, ensure_ascii=False) for row in rows]
    at = data.draw(st.integers(1, len(parts[victim]) - 2))
    junk = data.draw(st.text(st.sampled_from('{}[]",:\\ax1\n\x01'), max_size=6))
    cut = data.draw(st.integers(0, min(6, len(parts[victim]) - 1 - at)))
    parts[victim] = parts[victim][:at] + junk + parts[victim][at + cut :]
    path = tmp_path_factory.mktemp("damage") / "t.json"
    path.write_text('{"traceEvents": [' + ", ".join(parts) + "]}", newline="")
    try:
        found = events(open_document(path))
    except NeuronTbError:
        assert len(rows) == 1
        return
    assert contains(found, rows[:victim] + rows[victim + 1 :])


def contains(found: Iterable[Any], wanted: Iterable[Any]) -> bool:
    left = list(found)
    for row in wanted:
        if row not in left:
            return False
        left.remove(row)
    return True


@settings(max_examples=60, deadline=None)
@given(st.text(st.sampled_from('abc {}[]":,;()=.<>/'), min_size=1, max_size=40))
def test_a_name_written_without_escaping_costs_no_other_event(
    tmp_path_factory: pytest.TempPathFactory, name: str
) -> None:
    path = tmp_path_factory.mktemp("name") / "t.json"
    path.write_text(text_of(named(name)))
    assert contains(events(open_document(path)), [BEFORE, AFTER])
