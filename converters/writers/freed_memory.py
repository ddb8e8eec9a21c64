"""Memory that is no longer used, and that allocators keep for later."""

from __future__ import annotations

import ctypes
import sys


def give_back() -> None:
    """Return freed memory to the system.

    glibc and Arrow keep what large columns have used; between two stages of a conversion that
    is tens of megabytes for nothing. Costs a few milliseconds.
    """
    arrow = sys.modules.get("pyarrow")
    if arrow is not None:
        arrow.default_memory_pool().release_unused()
    if sys.platform == "linux":
        trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # glibc has it
        if trim is not None:
            trim(0)
