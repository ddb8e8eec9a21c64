"""Translating what a GPU script asks for into what Neuron can record."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from torch.profiler import ProfilerActivity

_OTHER_ACCELERATORS = ("CUDA", "XPU", "MTIA", "HPU")
_NEURON_NAMES = {
    "CUDA_RUNTIME": "PRIVATEUSE1_RUNTIME",
    "CUDA_DRIVER": "PRIVATEUSE1_DRIVER",
    "XPU_RUNTIME": "PRIVATEUSE1_RUNTIME",
    "XPU_DRIVER": "PRIVATEUSE1_DRIVER",
    "MTIA_RUNTIME": "PRIVATEUSE1_RUNTIME",
}
_WITHOUT_EQUIVALENT = {"OVERHEAD", "CUDA_SYNC", "CUDA_EVENT", "XPU_SYNC"}


def accelerators() -> set[ProfilerActivity]:
    """The activities of every accelerator this torch knows, PrivateUse1 among them."""
    found = {getattr(ProfilerActivity, name, None) for name in _OTHER_ACCELERATORS}
    return {activity for activity in found if activity is not None} | {ProfilerActivity.PrivateUse1}


def asks_for_accelerator(activities: Iterable[Any]) -> bool:
    """Whether any item, or any key of a filter, is an accelerator."""
    wanted = accelerators()
    return any(
        key in wanted
        for item in activities
        for key in (item if isinstance(item, dict) else (item,))
        if isinstance(key, ProfilerActivity)
    )


def translated(activities: Iterable[Any], *, always: bool = False) -> list[Any]:
    """``activities`` with one PrivateUse1 in place of all accelerators; translating twice is safe.

    torch takes the first accelerator of its own order, so a CUDA or XPU that stayed beside
    PrivateUse1 would win and the profile would be of the CPU only. Filters
    (``{activity: [type names]}``) are merged and their names translated; an accelerator without
    filter beats filters. Items of unknown types are passed on. ``always`` adds PrivateUse1.
    """
    wanted = accelerators()
    kept: list[Any] = []
    everything = False
    names: list[str] | None = None
    for item in activities:
        if isinstance(item, dict):
            rest = {key: value for key, value in item.items() if key not in wanted}
            if rest or not item:
                kept.append(rest)
            for key in item.keys() & wanted:
                names = (names or []) + _neuron_names(item[key])
        elif isinstance(item, ProfilerActivity) and item in wanted:
            everything = True
        else:
            kept.append(item)
    if everything or (always and names is None):
        kept.append(ProfilerActivity.PrivateUse1)
    elif names is not None:
        kept.append({ProfilerActivity.PrivateUse1: list(dict.fromkeys(names))})
    return kept


def _neuron_names(names: Iterable[str]) -> list[str]:
    return [_NEURON_NAMES.get(name, name) for name in names if name not in _WITHOUT_EQUIVALENT]
