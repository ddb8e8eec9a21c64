"""The one exception type whose text is meant for the user."""

from __future__ import annotations


class NeuronTbError(Exception):
    """Something the user can act on: one plain sentence, shown without a traceback."""


class NothingLeftError(NeuronTbError):
    """Filters leave nothing of a capture."""


class WrongUseError(NeuronTbError):
    """A value that no option takes; the exit status is that of wrong use."""


class UnknownEventError(WrongUseError, NothingLeftError):
    """A word of ``--events`` that is no event's name."""
