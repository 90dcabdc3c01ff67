"""The plan of a feed: what is known of its files and splits, and the choice of what to plan next. No input or output.

The rules, and what breaks without each, are in the README of this folder.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from experiments.feed import Feed
from ingest.contracts import T_END, T_MIN, Config
from ingest.formats.reading import FilePlan
from ingest.records import Floor, Progress, Split
from ingest.sources import FoundFile
from ingest.verdicts import Bounds


@dataclass(frozen=True, slots=True)
class Candidate:
    """A file that could be planned now.

    Args:
        file: of the listing. plan: its ranges and bounds. fp: fingerprint.
    """

    file: FoundFile
    plan: FilePlan
    fp: str


@dataclass(frozen=True, slots=True)
class Decision:
    """What one turn of the planner writes.

    Args:
        splits: new ones. floor: the new record of ``floor``. raises_W: whether W goes to the partitions.
    """

    splits: list[Split]
    floor: Floor
    raises_W: bool


@dataclass
class Listed:
    """A listing as the plan sees it.

    Args:
        eligible: unplanned files that may be planned, in path order. young: whether one was too young, or seen for the first time.
        late: names found after a snapshot was closed.
    """

    eligible: list[Candidate] = field(default_factory=list)
    young: bool = False
    late: list[str] = field(default_factory=list)


class Plan:
    """State of a feed's plan, folded from its topics."""

    def __init__(self, feed: Feed, config: Config) -> None:
        self.feed, self._config = feed, config
        self.in_order = feed.files.order == "in_order"
        self._slack = max(feed.disorder, feed.file_disorder)
        self.splits: dict[str, Split] = {}
        self.files: dict[str, list[str]] = {}
        self._highs: dict[str, int | None] = {}
        self._open: dict[str, int] = {}
        self._done: set[str] = set()
        self._newest = T_MIN
        self.floor = Floor()
        self.calm_turns = 0

    # -- folding the topics

    def add_split(self, split: Split) -> None:
        """A record of ``splits``."""
        self.splits[split.id] = split
        self.files.setdefault(split.file, []).append(split.id)
        if split.id not in self._done:
            self._open.setdefault(split.id, self._bounds(split).bound(T_MIN))

    def add_progress(self, progress: Progress) -> None:
        """A record of ``progress``."""
        self._newest = max(self._newest, progress.maxseen)
        if progress.done:
            self._done.add(progress.split)
            self._open.pop(progress.split, None)
        elif (split := self.splits.get(progress.split)) is not None:
            self._open[progress.split] = self._bounds(split).bound(progress.maxseen)

    def add_floor(self, floor: Floor) -> None:
        """A record of ``floor``: the newest one counts."""
        self.floor = floor

    def note_high(self, file: str, high: int | None) -> None:
        """Proved upper bound of a file's event times."""
        self._highs[file] = high

    @property
    def closed(self) -> bool:
        """Whether the feed is closed."""
        return self.floor.closed

    def open_splits(self) -> list[str]:
        """Ids of splits that are not done."""
        return list(self._open)

    def _bounds(self, split: Split) -> Bounds:
        return Bounds(split.L, self.feed.disorder if split.judged_by_rows else None, T_END)

    def _finished(self, file: str) -> bool:
        return file in self.files and self._done.issuperset(self.files[file])

    # -- deciding

    def decide(self, listed: Listed, *, lag: str, may_close: bool, now_us: int) -> Decision:
        """The next turn: which files to plan, the floor, W, and whether the feed is calm or closed.

        Args:
            lag: who holds up planning and by how much; empty if nobody does (never for a snapshot).
            may_close: closing was asked for, and every snapshot is closed.
        """
        snapshot = self.feed.snapshot
        floor = self._raised_floor()
        lagged = bool(lag) and not snapshot
        new, floor, left = self._choose(listed.eligible, floor, lagged, now_us)
        open_bounds = list(self._open.values())
        quiet = not new and not open_bounds and not listed.young
        closing = quiet and self.calm_turns >= 1 and not left and (bool(self.splits) if snapshot else may_close)
        self.calm_turns = self.calm_turns + 1 if quiet else 0
        if closing or self.closed:
            floor = T_END
        bounds = [floor, *open_bounds, *(self._bounds(split).bound(T_MIN) for split in new)]
        W = max(self.floor.W, T_MIN if snapshot and floor < T_END else min(bounds))
        names = sorted({split.file for split in new})
        late = {split.file for split in new if split.late}
        record = replace(
            self.floor,
            floor=max(floor, self.floor.floor),
            W=W,
            calm=quiet and self.calm_turns >= 2 and not left,
            closed=self.closed or closing,
            files=self.floor.files + len(names),
            late_files=len(listed.late) if snapshot else self.floor.late_files + len(late),
            waiting=lag if lagged and left else "",
        )
        return Decision(new, record, W > self.floor.W)

    def _raised_floor(self) -> int:
        """In-order feeds: what was read so far proves that older rows are late."""
        if self.in_order and not self.closed and self._newest > T_MIN:
            return max(self.floor.floor, self._newest - self._slack)
        return self.floor.floor

    def _choose(
        self, eligible: Sequence[Candidate], floor: int, lagged: bool, now_us: int
    ) -> tuple[list[Split], int, int]:
        """(new splits, the floor after them, files left)."""
        bounds = list(self._open.values())
        new: list[Split] = []
        planned = 0
        ordered = sorted(eligible, key=lambda c: self._place(c, floor))
        for candidate in ordered:
            lower = self._lower(candidate)
            L = floor if lower is None else max(lower, floor)
            hold = min([*bounds, *(split.L for split in new)], default=None)
            full = len(bounds) + len(new) >= self._config.open_splits
            ahead = hold is not None and hold + self._config.ahead_us < L
            if full or lagged or ahead or not self._in_turn(candidate, lower, eligible):
                break
            new += self._splits_of(candidate, L, lower, now_us, len(self.splits) + len(new))
            self._highs[candidate.file.path] = candidate.plan.hi
            if not self.feed.snapshot and T_MIN < L < T_END:
                floor = max(floor, L - (self._slack if self.in_order else self.feed.file_disorder))
            planned += 1
        return new, floor, len(ordered) - planned

    def _place(self, candidate: Candidate, floor: int) -> tuple[int, str]:
        lower = self._lower(candidate)
        return (0 if self.in_order else max(lower if lower is not None else floor, floor), candidate.file.path)

    def _lower(self, candidate: Candidate) -> int | None:
        """Lower bound of a file, never below ``min_time``: a garbage 1970 must not hold W."""
        return None if candidate.plan.lo is None else max(candidate.plan.lo, self.feed.min_time)

    def _in_turn(self, candidate: Candidate, lower: int | None, eligible: Sequence[Candidate]) -> bool:
        """In-order feeds: every earlier file is done, or proved unable to raise the floor above this one's lower bound."""
        if not self.in_order or self.closed or self.feed.snapshot:
            return True
        path = candidate.file.path
        earlier = {file for file in self.files if file < path} | {c.file.path for c in eligible if c.file.path < path}
        for file in earlier:
            if self._finished(file):
                continue
            high = self._highs.get(file)
            if lower is None or high is None or high - self._slack > lower:
                return False
        return True

    def _splits_of(self, candidate: Candidate, L: int, lower: int | None, now_us: int, seq: int) -> list[Split]:
        file, plan = candidate.file, candidate.plan
        return [
            Split(
                id=f"{file.path}#{number}",
                seq=seq + number,
                file=file.path,
                size=file.size,
                mtime_us=file.mtime_us,
                fp=candidate.fp,
                begin=part.begin,
                end=part.end,
                first_row=part.first_row,
                L=T_MIN if self.feed.snapshot else L,
                judged_by_rows=plan.judged_by_rows and not self.feed.snapshot,
                plan_time_us=now_us,
                late=not self.feed.snapshot and lower is not None and lower < L,
            )
            for number, part in enumerate(plan.ranges)
        ]


def eligible_files(
    files: Sequence[FoundFile],
    planned: Mapping[str, object],
    known: frozenset[str],
    *,
    in_order: bool,
    young_after_us: int,
) -> tuple[list[FoundFile], bool]:
    """(files that may be planned, whether one was held back). A file changed after ``young_after_us`` is young. An in-order
    listing ends at its first young file, and takes only files that an earlier listing saw too (``known``): a listing is not one
    moment, and may show file 7 before file 6."""
    out: list[FoundFile] = []
    young = False
    for file in files:
        if file.path in planned:
            continue
        if file.mtime_us > young_after_us or (in_order and file.path not in known):
            young = True
            if in_order:
                break
            continue
        out.append(file)
    return out, young
