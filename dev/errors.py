"""What goes wrong with a service: one line that says what to do."""

from __future__ import annotations


class Missing(Exception):
    """A program or a file that a service needs isn't there and can't be fetched."""


class NotReady(Exception):
    """A service was started and does not answer; where its log is."""
