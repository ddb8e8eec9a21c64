"""Places that are URLs: ``s3://…`` and whatever else fsspec reaches."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

from neuron_tb.converters.errors import NeuronTbError

_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+://")

AT_ONCE = 32
"""How many files are copied in one call."""

Place = str | Path


def is_url(place: object) -> bool:
    """Whether a source or destination is a URL and no path."""
    return isinstance(place, str) and _URL.match(place) is not None


def system_of(url: str) -> tuple[Any, str]:
    """Fsspec's file system of a URL, and the path in it."""
    try:
        core = import_module("fsspec.core")
    except ImportError as error:
        raise NeuronTbError(_MISSING.format(url=url)) from error
    try:
        system, path = core.url_to_fs(url)
    except ImportError as error:
        raise NeuronTbError(_MISSING.format(url=url)) from error
    system.invalidate_cache()
    return system, str(path)


_MISSING = (
    "{url} needs more packages: pip install 'neuron-tb[remote]' brings fsspec and s3fs; for other "
    "stores add fsspec's own package, such as gcsfs or adlfs."
)


@contextmanager
def plainly(url: str, what: str) -> Iterator[None]:
    """Whatever a store's client raises becomes a sentence."""
    try:
        yield
    except NeuronTbError:
        raise
    except FileNotFoundError as error:
        raise NeuronTbError(f"{url} does not exist.") from error
    except Exception as error:
        reason = " ".join(str(error).split()) or type(error).__name__
        raise NeuronTbError(f"{url} cannot be {what}: {reason.rstrip('.')}.") from error
