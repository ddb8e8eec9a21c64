"""Names of device times that GPU scripts use and torch's events lack."""

from __future__ import annotations

from typing import Any

_PATTERNS = (
    "{}_time",
    "{}_time_total",
    "self_{}_time_total",
    "{}_memory_usage",
    "self_{}_memory_usage",
    "{}_time_str",
    "{}_time_total_str",
    "self_{}_time_total_str",
)
_PREFIXES = ("cuda", "neuron")


def add_time_names(owner: type) -> list[str]:
    """Add ``cuda_…`` and ``neuron_…`` properties for ``device_…`` ones; those there are stay.

    Returns the names that were added. ``table(sort_by=…)`` and ``export_stacks`` read attributes
    by name, so they take the new names too.
    """
    added = []
    for prefix in _PREFIXES:
        for pattern in _PATTERNS:
            name = pattern.format(prefix)
            if not hasattr(owner, name):
                setattr(owner, name, _reading(pattern.format("device")))
                added.append(name)
    return added


def _reading(name: str) -> property:
    def read(self: Any) -> Any:
        return getattr(self, name)

    return property(read, doc=f"The same as ``{name}``.")
