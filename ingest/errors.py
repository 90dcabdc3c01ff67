"""Errors of ingest."""

from __future__ import annotations


class FileRejected(Exception):
    """The rest of a file cannot be used. What was read before stays.

    Args:
        reason: code for the dead letter. detail: expected and got, for people.
        row: first row that is lost; −1 for the whole file. raw: bytes around the place, capped.
    """

    def __init__(self, reason: str, detail: str, *, row: int = -1, raw: bytes = b"") -> None:
        super().__init__(f"{reason}: {detail}")
        self.reason, self.detail, self.row, self.raw = reason, detail, row, raw
