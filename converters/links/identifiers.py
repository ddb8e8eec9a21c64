"""Looking rows up by an identifier that is only unique within a scope, and only for a time."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from neuron_tb.converters.model import NONE, Bools, Int32, Int64


class Finder:
    """Finds, among candidates of a process, the latest one with an id that starts in time."""

    def __init__(
        self,
        process: Int32,
        start_ns: Int64,
        scope: Int32 | None = None,
        of_query: Int32 | None = None,
    ) -> None:
        self._process, self._start = process, start_ns
        self._scope, self._of_query = scope, of_query

    def scoped(self, scope: Int32, of_query: Int32) -> Finder:
        """The same candidates, restricted to those whose scope is the query's, or unknown."""
        return Finder(self._process, self._start, scope, of_query)

    def latest(
        self, ids: Int64, usable: Bools, process: Int32, wanted: Int64, before_ns: Int64
    ) -> Int32:
        """For each query (process, wanted id, time) the position of its candidate, or NONE.

        The latest candidate that starts before the time wins; if all start later (clocks that
        disagree), the first one.
        """
        found = np.full(len(wanted), NONE, np.int32)
        asked = np.flatnonzero(wanted != NONE)
        rows = np.flatnonzero(usable)
        if not len(asked) or not len(rows):
            return found
        own: list[NDArray[Any]] = [
            self._process[rows],
            self._scoped(rows),
            ids[rows],
            self._start[rows],
        ]
        for scope in [None] if self._of_query is None else [self._of_query, None]:
            unknown = np.full(len(asked), NONE, np.int64)
            query_scope = unknown if scope is None else scope[asked].astype(np.int64)
            queries: list[NDArray[Any]] = [
                process[asked],
                query_scope,
                wanted[asked],
                before_ns[asked],
            ]
            hits = latest_of(own, queries)
            new = (hits != NONE) & (found[asked] == NONE)
            found[asked[new]] = rows[hits[new]]
        return found

    def _scoped(self, rows: NDArray[np.intp]) -> Int64:
        if self._scope is None:
            return np.full(len(rows), NONE, np.int64)
        return self._scope[rows].astype(np.int64)


def latest_of(candidates: list[NDArray[Any]], queries: list[NDArray[Any]]) -> Int32:
    """For each query the last candidate with equal keys that is not later, else the first one.

    Both are columns (key, key, key, time). Sorted together, every query stands behind the
    candidates that are in time and before those that are late.
    """
    only = _only_candidates(candidates, queries)
    if only is not None:
        return only
    n, m = len(candidates[0]), len(queries[0])
    columns = [np.concatenate(pair) for pair in zip(candidates, queries, strict=True)]
    is_query = np.arange(n + m) >= n
    varying = [c for c in reversed(columns) if (c != c[0]).any()]
    order = np.lexsort((is_query, *varying))
    asked = is_query[order]
    place = np.arange(n + m)
    before = np.maximum.accumulate(np.where(asked, NONE, place))
    after = np.minimum.accumulate(np.where(asked, n + m, place)[::-1])[::-1]
    found = np.full(m, NONE, np.int32)
    for neighbour in (after, before):
        near = neighbour[asked]
        exists = (near >= 0) & (near < n + m)
        rows = order[np.where(exists, near, 0)]
        query = order[asked]
        same = exists & np.logical_and.reduce([c[rows] == c[query] for c in columns[:3]])
        found[query[same] - n] = rows[same]
    return found


def _only_candidates(candidates: list[NDArray[Any]], queries: list[NDArray[Any]]) -> Int32 | None:
    """The result of ``latest_of`` where nothing but one key differs and is never repeated."""
    pairs = list(zip(candidates[:3], queries[:3], strict=True))
    varying = [(c, q) for c, q in pairs if (c != c[0]).any() or (q != c[0]).any()]
    if len(varying) != 1:
        return None
    known, wanted = varying[0]
    order = None
    if not np.all(known[1:] > known[:-1]):
        order = np.argsort(known, kind="stable")
        known = known[order]
        if not np.all(known[1:] > known[:-1]):
            return None
    at = np.minimum(np.searchsorted(known, wanted), len(known) - 1)
    rows = at if order is None else order[at]
    return np.where(known[at] == wanted, rows, NONE).astype(np.int32)
