"""Errors of specs: all problems of a file on one screen."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from streams.errors import Usage

SHOWN = 10
CORRECT = "Correct the file."


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing wrong in a spec.

    Args:
        file, line: where; line from 1, 0 if the whole file is meant.
        path: in the document, for example ``features.user.hash``.
        expected, got: what would be right and what came.
        do: what to write instead; may be empty.
    """

    file: str
    line: int
    path: str
    expected: str
    got: str
    do: str = ""

    @property
    def where(self) -> str:
        """``file:line (path)``."""
        place = f"{self.file}:{self.line}" if self.line else self.file
        return f"{place} ({self.path})" if self.path else place

    def as_dict(self) -> dict[str, str]:
        """The object for ``--json``."""
        do = self.do or CORRECT
        return {"expected": self.expected, "got": self.got, "where": self.where, "do": do}

    def __str__(self) -> str:
        hint = f"\n      {self.do}" if self.do else ""
        return f"{self.where}\n      expected {self.expected}, got {self.got}{hint}"


class SpecError(Usage):
    """A spec that cannot be used, with every problem found in it."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        first = problems[0]
        super().__init__(expected=first.expected, got=first.got, where=first.where, do=first.do or CORRECT)
        self.problems = tuple(problems)

    def __str__(self) -> str:
        lines = [f"  {number}. {problem}" for number, problem in enumerate(self.problems[:SHOWN], 1)]
        if (more := len(self.problems) - SHOWN) > 0:
            lines.append(f"  … and {more} more")
        count = len(self.problems)
        return "\n".join([f"{count} problem{'s' if count > 1 else ''}:", *lines])

    def as_dict(self) -> dict[str, Any]:
        """The object for ``--json``: the first problem's fields, as of any error, and ``problems`` with all of them."""
        return super().as_dict() | {"problems": [problem.as_dict() for problem in self.problems]}
