"""What a user asks to see: ranks, cores, steps, a range of time, kinds of Neuron's events."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from neuron_tb.converters.errors import WrongUseError

_UNITS_NS = {"ns": 1, "us": 1_000, "ms": 1_000_000, "s": 1_000_000_000}
_TIME = re.compile(r"(\d{1,18}(?:\.\d{1,18})?)\s*(ns|us|ms|s)")
_RANGE = re.compile(r"(\d{1,9})(?:-(\d{1,9}))?")
_STEPS = re.compile(r"(\d{0,18}):(\d{0,18})|(\d{1,18})")
_WORD = re.compile(r"\^?[A-Za-z0-9_]+")

EVENT_GROUPS = ("all", "hardware", "software", "framework")

Ranges = tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class Filters:
    """What to keep; None keeps everything.

    ``ranks``, ``cores``: ranges of numbers, both ends included; cores are logical ones, numbered
    inside their process. ``steps``: first and last step number, None where it is open.
    ``time_ns``: from and to, in nanoseconds after ``zero_ns`` (the capture's first event when it
    is None). ``events``: words of Neuron's event filter.
    """

    ranks: Ranges | None = None
    cores: Ranges | None = None
    steps: tuple[int | None, int | None] | None = None
    time_ns: tuple[int | None, int | None] | None = None
    events: tuple[str, ...] | None = None
    zero_ns: int | None = None

    @classmethod
    def of(
        cls,
        ranks: str | None = None,
        cores: str | None = None,
        steps: str | None = None,
        time: str | None = None,
        events: str | None = None,
    ) -> Filters:
        """Parse ``0,3-5`` (ranks, cores), ``2:5``, ``10ms:20ms`` and Neuron's filter words.

        Raises WrongUseError, with an example, for anything else.
        """
        return cls(
            None if ranks is None else _ranges(ranks, "--ranks"),
            None if cores is None else _ranges(cores, "--cores"),
            None if steps is None else _steps(steps),
            None if time is None else _times(time),
            None if events is None else _words(events),
        )

    def __bool__(self) -> bool:
        kept = (self.ranks, self.cores, self.steps, self.time_ns, self.events)
        return any(value is not None for value in kept)

    def __str__(self) -> str:
        """As the options that say the same."""
        parts = []
        for name, ranges in (("ranks", self.ranks), ("cores", self.cores)):
            if ranges is not None:
                parts.append(f"--{name} {_ranges_text(ranges)}")
        if self.steps is not None:
            first, last = ("" if step is None else str(step) for step in self.steps)
            parts.append(f"--steps {first}:{last}" if first != last else f"--steps {first}")
        if self.time_ns is not None:
            begin, end = ("" if t is None else f"{t / 1e6:g}ms" for t in self.time_ns)
            parts.append(f"--time {begin}:{end}")
        if self.events is not None:
            parts.append(f"--events {','.join(self.events)}")
        return " ".join(parts)

    def wants_rank(self, rank: int | None) -> bool:
        """Whether a rank is kept; an unknown one may be."""
        return self.ranks is None or rank is None or within(rank, self.ranks)


# -- texts --------------------------------------------------------------------------------------


def _ranges(text: str, option: str) -> Ranges:
    ranges = []
    for part in text.split(","):
        match = _RANGE.fullmatch(part.strip())
        if match is None or (match[2] and int(match[2]) < int(match[1])):
            raise WrongUseError(f"{option} takes numbers and ranges such as 0,3-5, not {text!r}.")
        ranges.append((int(match[1]), int(match[2] or match[1])))
    return tuple(ranges)


def within(number: int, ranges: Ranges) -> bool:
    """Whether a number lies in one of the ranges."""
    return any(first <= number <= last for first, last in ranges)


def _ranges_text(ranges: Ranges) -> str:
    return ",".join(f"{a}" if a == b else f"{a}-{b}" for a, b in ranges)


def _steps(text: str) -> tuple[int | None, int | None]:
    match = _STEPS.fullmatch(text.strip())
    if match is None or not any(match.groups()):
        raise WrongUseError(f"--steps takes a step or a range such as 2:5, 2: or :5, not {text!r}.")
    if match[3]:
        return int(match[3]), int(match[3])
    first, last = (int(part) if part else None for part in (match[1], match[2]))
    if first is not None and last is not None and last < first:
        raise WrongUseError(f"--steps {text}: the last step comes before the first.")
    return first, last


def _times(text: str) -> tuple[int | None, int | None]:
    first, colon, last = text.partition(":")
    begin, end = _nanoseconds(first), _nanoseconds(last)
    wrong = (first.strip() and begin is None) or (last.strip() and end is None) or not colon
    if wrong or (begin is None and end is None):
        raise WrongUseError(
            "--time takes a range such as 10ms:20ms, 1.5s: or :800us (ns, us, ms or s after the "
            f"capture's first event), not {text!r}."
        )
    if begin is not None and end is not None and end <= begin:
        raise WrongUseError(f"--time {text}: the range ends before it begins.")
    return begin, end


def _nanoseconds(text: str) -> int | None:
    match = _TIME.fullmatch(text.strip())
    if match is None:
        return None
    whole, _, decimals = match[1].partition(".")
    unit = _UNITS_NS[match[2]]
    return int(whole) * unit + int(decimals.ljust(9, "0")[:9]) * unit // 1_000_000_000


def _words(text: str) -> tuple[str, ...]:
    words = tuple(word.strip() for word in text.split(","))
    for word in words:
        if _WORD.fullmatch(word) is None:
            raise WrongUseError(
                "--events takes names of Neuron's events and the words "
                f"{', '.join(EVENT_GROUPS)}, each with ^ in front to leave it out, such as "
                f"nrt_execute,hardware,^cc_running; {word!r} is none."
            )
    return words


def ranks_text(values: Iterable[int]) -> str:
    """Ascending numbers as ranges: ``0,3-5``."""
    spans: list[list[int]] = []
    for value in values:
        if spans and value == spans[-1][1] + 1:
            spans[-1][1] = value
        else:
            spans.append([value, value])
    return _ranges_text(tuple((a, b) for a, b in spans[:20]))
