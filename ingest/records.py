"""Records of ``splits``, ``progress`` and ``floor``: JSON objects with a version."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field, fields
from typing import Any, Self

from ingest.contracts import T_MIN, FloorState
from streams.contracts import Record
from streams.errors import Broken
from streams.packed import place

VERSION = 1


@dataclass(frozen=True, slots=True)
class _Body:
    """Base: to and from JSON; unknown keys are ignored, so that later versions may add some."""

    def encode(self) -> bytes:
        """The record's value."""
        return json.dumps({"v": VERSION} | asdict(self), separators=(",", ":"), ensure_ascii=False).encode()

    @classmethod
    def decode(cls, record: Record) -> Self:
        """Raises ``Broken`` for anything else."""
        try:
            body = json.loads(bytes(record.value or b""))
            return cls(**{f.name: body[f.name] for f in fields(cls) if f.name in body})
        except (ValueError, TypeError, KeyError) as error:
            raise Broken(
                expected=f"a record of {cls.__name__}",
                got=str(error),
                where=place(record),
                do="The plan of this feed is damaged; use a new project folder and read the files again.",
            ) from error


@dataclass(frozen=True, slots=True)
class Split(_Body):
    """A part of a file that one reader reads.

    Args:
        id: ``<file>#<number of the part>``. seq: number in the plan; readers take lower ones first.
        file: relative to the feed's root. size, mtime_us, fp: of the file when it was planned.
        begin, end: row groups, or bytes; ``end`` −1: to the end of the file. first_row, first_line: numbers of its first row
            (from 0) and line (from 1; −1 where a file has no lines).
        L: bound: older rows are late. judged_by_rows: also rows older than the newest before them, less ``disorder``, are late.
        plan_time_us: wall clock of the planner. late: the file broke the order, or came after the closing.
        hi: proved upper bound of the file's event times, if any.
        next: where the file's next part begins: ``[begin, first_row, first_line, newest]``; ``None``: this is the last.
    """

    id: str
    seq: int
    file: str
    size: int
    mtime_us: int
    fp: str
    begin: int
    end: int
    first_row: int
    first_line: int
    L: int
    judged_by_rows: bool
    plan_time_us: int
    late: bool
    hi: int | None
    next: list[int] | None


@dataclass(frozen=True, slots=True)
class Progress(_Body):
    """One transaction of a reader inside a split.

    Args:
        split, file: of the split. maxseen: newest event time so far in it; ``T_MIN`` before the first.
        done: the split is finished. rows, used, rejected, late: of this transaction. reasons: of the rejected.
    """

    split: str
    file: str
    maxseen: int
    done: bool
    rows: int
    used: int
    rejected: int
    late: int
    reasons: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Floor(_Body):
    """State of the planner; see ``ingest.contracts.FloorState``.

    Args:
        changed_files: files that changed after they were planned: what came into them later is not read.
        unused: names (the first few) of files found after a snapshot was closed.
    """

    floor: int = T_MIN
    W: int = T_MIN
    calm: bool = False
    closed: bool = False
    files: int = 0
    late_files: int = 0
    waiting: str = ""
    changed_files: int = 0
    unused: list[str] = field(default_factory=list)

    def state(self) -> FloorState:
        """What others see."""
        return FloorState(self.floor, self.calm, self.closed, self.files, self.late_files, self.waiting)


def encode_resume(body: dict[str, Any]) -> str:
    """Metadata of a reader's offset."""
    return json.dumps({"v": VERSION} | body, separators=(",", ":"), ensure_ascii=False)
