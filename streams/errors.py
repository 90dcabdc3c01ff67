"""Errors of every stage. A message says what was expected, what came, where, and what to do.

The kinds say whose fault it is; a stage's own ``errors.py`` only adds kinds of its own. ``headrace.cli`` is the
only place that maps ``exit_code`` to the process.
"""

from __future__ import annotations

EXIT_WORK_FAILED = 1
EXIT_USAGE = 2
EXIT_UNREACHABLE = 3
EXIT_REJECTED = 4
EXIT_INCOMPATIBLE = 5


class HeadraceError(Exception):
    """Base of all errors that a user may see.

    Args:
        expected: what would have been right.
        got: what came instead.
        where: file and line, topic and offset, or setting.
        do: what to do now, as an instruction.
    """

    exit_code = EXIT_WORK_FAILED
    retriable = False

    def __init__(self, *, expected: str, got: str, where: str, do: str) -> None:
        super().__init__(f"{where}: expected {expected}, got {got}. {do}")
        self.expected = expected
        self.got = got
        self.where = where
        self.do = do

    def as_dict(self) -> dict[str, object]:
        """The object that ``--json`` prints under ``error``."""
        return {
            "expected": self.expected,
            "got": self.got,
            "where": self.where,
            "do": self.do,
            "exit_code": self.exit_code,
        }


class Usage(HeadraceError):
    """The caller or the configuration is wrong."""

    exit_code = EXIT_USAGE


class Closed(HeadraceError):
    """Used after ``close``, or after a fork."""


class Broken(HeadraceError):
    """Stored bytes are not what was written (digest, structure, missing file)."""


class Busy(HeadraceError):
    """Another holder has it now; try again."""

    retriable = True


class Exhausted(HeadraceError):
    """A limit of size, space or count is reached."""


class Unreachable(HeadraceError):
    """A service or a file system does not answer."""

    exit_code = EXIT_UNREACHABLE
    retriable = True


class Backpressure(HeadraceError):
    """Slow down: try again after ``retry_after_s`` seconds."""

    retriable = True

    def __init__(self, *, expected: str, got: str, where: str, do: str, retry_after_s: float) -> None:
        super().__init__(expected=expected, got=got, where=where, do=do)
        self.retry_after_s = retry_after_s


class SchemaMismatch(HeadraceError):
    """Two parties disagree on a type, a layout or a number of partitions."""

    exit_code = EXIT_INCOMPATIBLE


class Fenced(HeadraceError):
    """A newer producer of the same transactional id exists: this one must stop, its transaction is gone."""


class Rebalanced(HeadraceError):
    """A partition whose offset was sent belongs to another member now. The transaction was aborted; the producer
    stays usable. Drop the work of the lost partitions and go on."""

    retriable = True


class UnknownOutcome(HeadraceError):
    """The commit may or may not have happened. Throw the producer away, make a new one (which fences the old), then
    re-read the committed offsets. Never begin another transaction on it."""

    retriable = True
