"""Errors of specs: all problems of a file on one screen."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass

from streams.errors import Usage

SHOWN = 10


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

    def __str__(self) -> str:
        hint = f"\n      {self.do}" if self.do else ""
        return f"{self.where}\n      expected {self.expected}, got {self.got}{hint}"


class SpecError(Usage):
    """A spec that cannot be used, with every problem found in it."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        first = problems[0]
        super().__init__(expected=first.expected, got=first.got, where=first.where, do=first.do or "Correct the file.")
        self.problems = tuple(problems)

    def __str__(self) -> str:
        lines = [f"  {number}. {problem}" for number, problem in enumerate(self.problems[:SHOWN], 1)]
        if (more := len(self.problems) - SHOWN) > 0:
            lines.append(f"  … and {more} more")
        count = len(self.problems)
        return "\n".join([f"{count} problem{'s' if count > 1 else ''}:", *lines])

    def as_dict(self) -> dict[str, object]:
        """The object for ``--json``: the first problem, and all of them in ``problems``."""
        base = super().as_dict()
        if len(self.problems) > 1:
            base["got"] = f"{self.got} (and {len(self.problems) - 1} more, see problems)"
        return base | {"problems": [asdict(problem) for problem in self.problems]}
