"""Errors of the trainer, besides those of ``streams.errors``."""

from __future__ import annotations

from streams.errors import EXIT_INCOMPATIBLE, EXIT_REJECTED, HeadraceError


class LostTail(HeadraceError):
    """The log does not hold the messages that the checkpoints were trained on: going on would lose or repeat rows."""

    exit_code = EXIT_INCOMPATIBLE


class NonFinite(HeadraceError):
    """Values that are not finite, again and again or in what should be saved. Nothing of them was saved."""

    exit_code = EXIT_REJECTED


class Contradiction(HeadraceError):
    """A readable local batch does not follow from the ones before it: rows were lost or doubled."""

    exit_code = EXIT_INCOMPATIBLE
