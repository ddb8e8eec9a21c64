"""Leaving out whole captures: those of ranks that nobody asked for are not even read."""

from __future__ import annotations

from dataclasses import replace

from neuron_tb.converters.captures.capture import Found
from neuron_tb.converters.captures.units import Unit, units_of
from neuron_tb.converters.errors import NothingLeftError
from neuron_tb.converters.selection.filters import Filters, ranks_text


def only_ranks(found: Found, filters: Filters) -> Found:
    """Without the captures of ranks that filters leave out, as far as ranks are known unread.

    Raises NothingLeftError when none is left.
    """
    if filters.ranks is None:
        return found
    units = units_of(found)
    wanted = [unit for unit in units if _wanted(unit, filters)]
    if not wanted:
        ranks = sorted({rank for unit in units for rank in unit.ranks if rank is not None})
        raise NothingLeftError(
            f"nothing is left after {filters}: the capture has ranks {ranks_text(ranks)}."
        )
    return replace(found, captures=[c for unit in wanted for c in unit.found.captures])


def _wanted(unit: Unit, filters: Filters) -> bool:
    """Whether filters may leave something of it, as far as its ranks are known."""
    return not unit.ranks or any(filters.wants_rank(rank) for rank in unit.ranks)
