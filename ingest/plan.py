"""The plan of a feed: what is known of its files and splits, and the choice of what to plan next. No input or output.

The rules, and what breaks without each, are in the README of this folder.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from experiments.feed import Feed
from ingest.contracts import T_END, T_MIN, Config
from ingest.formats.reading import FilePlan, Range, Start
from ingest.records import Floor, Progress, Split
from ingest.sources import FoundFile
from ingest.verdicts import Bounds


@dataclass(frozen=True, slots=True)
class Candidate:
    """A file of which a part could be planned now.

    Args:
        file: as it was listed, or as it was when its first part was planned. plan: of what is not planned yet. fp: fingerprint.
    """

    file: FoundFile
    plan: FilePlan
    fp: str


@dataclass(frozen=True, slots=True)
class Decision:
    """What one turn of the planner writes.

    Args:
        splits: new ones. floor: the new record of ``floor``. raises_W: whether W goes to the partitions.
        held: which file waits for which other one; passes as files are read, so it is told only if nothing moves.
    """

    splits: list[Split]
    floor: Floor
    raises_W: bool
    held: str = ""


@dataclass
class Listed:
    """What the plan may choose from.

    Args:
        eligible: files that may be begun, in the order of choice; at least one more than can be open. rests: begun files whose next
            parts are known.
        fresh: the folder was listed for this turn. young: a file is too young, was seen for the first time, or not looked into yet.
        unused: names found after a snapshot was closed. changed: number of files that changed after they were planned.
        trouble: why the folder or a file cannot be looked at; empty if all is well.
    """

    eligible: list[Candidate] = field(default_factory=list)
    rests: list[Candidate] = field(default_factory=list)
    fresh: bool = False
    young: bool = False
    unused: list[str] = field(default_factory=list)
    changed: int = 0
    trouble: str = ""


@dataclass
class _Turn:
    """The next range of a file in one choice."""

    candidate: Candidate
    last: Split | None
    number: int = 0

    @property
    def range(self) -> Range:
        return self.candidate.plan.ranges[self.number]


class Plan:
    """State of a feed's plan, folded from its topics."""

    def __init__(self, feed: Feed, config: Config) -> None:
        self.feed, self._config = feed, config
        self.in_order = feed.files.order == "in_order"
        self._slack = max(feed.disorder, feed.file_disorder)
        self.files: dict[str, list[str]] = {}
        self._splits: dict[str, Split] = {}
        self._last: dict[str, Split] = {}
        self._rests: dict[str, Split] = {}
        self._open: dict[str, int] = {}
        self._done: set[str] = set()
        self._unfinished: set[str] = set()
        self._newest = T_MIN
        self.floor = Floor()
        self.calm_turns = 0

    # -- folding the topics

    def add_split(self, split: Split) -> None:
        """A record of ``splits``; those of a file in order."""
        self._splits[split.id] = split
        self.files.setdefault(split.file, []).append(split.id)
        self._last[split.file] = split
        if split.next is None:
            self._rests.pop(split.file, None)
        else:
            self._rests[split.file] = split
        if split.id not in self._done:
            self._open.setdefault(split.id, self._bounds(split).bound(T_MIN))
        self._note(split.file)

    def add_progress(self, progress: Progress) -> None:
        """A record of ``progress``."""
        self._newest = max(self._newest, progress.maxseen)
        if progress.done:
            self._done.add(progress.split)
            self._open.pop(progress.split, None)
            if progress.file in self.files:
                self._note(progress.file)
        elif (split := self._splits.get(progress.split)) is not None:
            self._open[progress.split] = self._bounds(split).bound(progress.maxseen)

    def add_floor(self, floor: Floor) -> None:
        """A record of ``floor``: the newest one counts."""
        self.floor = floor

    @property
    def closed(self) -> bool:
        """Whether the feed is closed."""
        return self.floor.closed

    def open_splits(self) -> list[str]:
        """Ids of splits that are not done."""
        return list(self._open)

    def rests(self) -> list[tuple[FoundFile, str, Start]]:
        """(file as it was planned, fingerprint, where it goes on) of the files that are planned in part."""
        return [
            (FoundFile(split.file, split.size, split.mtime_us), split.fp, Start(*split.next))
            for split in self._rests.values()
            if split.next is not None
        ]

    def changed(self, files: Sequence[FoundFile]) -> int:
        """How many files are not what they were when they were planned."""
        return sum(
            1
            for file in files
            if (split := self._last.get(file.path)) and (split.size, split.mtime_us) != (file.size, file.mtime_us)
        )

    def _bounds(self, split: Split) -> Bounds:
        return Bounds(split.L, self.feed.disorder if split.judged_by_rows else None, T_END)

    def _note(self, file: str) -> None:
        """Keep ``_unfinished``: files that are planned in part, or of which a split is open."""
        if file not in self._rests and self._done.issuperset(self.files[file]):
            self._unfinished.discard(file)
        else:
            self._unfinished.add(file)

    def lowest(self, candidate: Candidate) -> int:
        """Lower bound of a file that is not begun; its bound is this or the floor, whichever is newer."""
        return T_MIN if self.feed.snapshot else self._lower(candidate.plan.ranges[0].lo)

    # -- deciding

    def decide(self, listed: Listed, *, lag: str, may_close: bool, now_us: int) -> Decision:
        """The next turn: what to plan, the floor, W, and whether the feed is calm or closed.

        Args:
            lag: who holds up planning and by how much; empty if nobody does (never for a snapshot).
            may_close: closing was asked for, and every snapshot is closed.
        """
        snapshot = self.feed.snapshot
        lagged = bool(lag) and not snapshot
        new, floor, left, held = self._choose(listed, self._raised_floor(), lagged, now_us)
        last = self._rests | {split.file: split for split in new}
        rests = [split for split in last.values() if split.next is not None]
        busy = bool(new or self._open or rests or listed.young or listed.trouble or left)
        quiet = listed.fresh and not busy
        closing = quiet and self.calm_turns >= 1 and (bool(self.files) if snapshot else may_close)
        self.calm_turns = 0 if busy else self.calm_turns + int(listed.fresh)
        if closing or self.closed:
            floor = T_END
        bounds = [floor, *self._open.values(), *(self._bounds(split).bound(T_MIN) for split in new)]
        W = T_MIN if snapshot and floor < T_END else min([*bounds, *(split.L for split in rests)])
        begun = [split for split in new if split.file not in self.files]
        record = replace(
            self.floor,
            floor=max(floor, self.floor.floor),
            W=max(self.floor.W, W),
            calm=not busy and self.calm_turns >= 2,
            closed=self.closed or closing,
            files=self.floor.files + len({split.file for split in begun}),
            late_files=len(listed.unused) if snapshot else self.floor.late_files + sum(split.late for split in begun),
            waiting=listed.trouble or (lag if lagged and left else ""),
            changed_files=listed.changed,
            unused=listed.unused[:10],
        )
        return Decision(new, record, record.W > self.floor.W, "" if new or record.waiting else held)

    def _raised_floor(self) -> int:
        """In-order feeds: what was read so far proves that older rows are late."""
        if self.in_order and not self.closed and self._newest > T_MIN:
            return max(self.floor.floor, self._newest - self._slack)
        return self.floor.floor

    def _choose(self, listed: Listed, floor: int, lagged: bool, now_us: int) -> tuple[list[Split], int, int, str]:
        """(new splits, the floor after them, files that were left, what holds the next one)."""
        new: list[Split] = []
        held = ""
        turns = [_Turn(candidate, self._last[candidate.file.path]) for candidate in listed.rests]
        turns += [_Turn(candidate, None) for candidate in listed.eligible]
        while turns:
            turn = min(turns, key=lambda turn: self._place(turn, floor))
            if lagged or len(self._open) + len(new) >= self._config.open_splits:
                break
            split = self._split(turn, floor, now_us, len(self._splits) + len(new))
            if self._hold(turn, turns, new, floor) + self._config.ahead_us < split.L:
                held = f"for {self._oldest()} to be read: {split.file} begins too long after it (setting ingest.ahead)"
                break
            if turn.last is None and not self._in_turn(turn.candidate, listed.eligible):
                held = f"for {self._oldest()} to be read: {split.file} comes after it (files.order: in_order)"
                break
            new.append(split)
            if not self.feed.snapshot and split.L < T_END:
                floor = max(floor, split.L - (self._slack if self.in_order else self.feed.file_disorder))
            turn.last, turn.number = split, turn.number + 1
            if turn.number == len(turn.candidate.plan.ranges):
                turns.remove(turn)
        return new, floor, len(turns), held

    def _oldest(self) -> str:
        """File of the open split that holds W; without one, of a file that is planned in part."""
        split_id = min(self._open, key=lambda id: (self._open[id], self._splits[id].seq), default="")
        return self._splits[split_id].file if split_id else min(self._rests, default="another file")

    def _hold(self, turn: _Turn, turns: Sequence[_Turn], new: Sequence[Split], floor: int) -> int:
        """Planning may run ``ahead`` of this: the least bound of what is open, and of begun files between two parts."""
        bounds = [*self._open.values(), *(split.L for split in new)]
        bounds += [self._bound(other, floor) for other in turns if other.last is not None and other is not turn]
        known = {other.candidate.file.path for other in turns}
        bounds += [split.L for file, split in self._rests.items() if file not in known]
        return min(bounds, default=T_END)

    def _place(self, turn: _Turn, floor: int) -> tuple[int, int, str]:
        """Order of choice: by bound and path; in-order feeds go on with begun files, then by path."""
        if self.in_order:
            return (0, self._bound(turn, floor), turn.last.file) if turn.last else (1, 0, turn.candidate.file.path)
        return (0, self._bound(turn, floor), turn.candidate.file.path)

    def _lower(self, lo: int | None) -> int:
        """A bound, never below ``min_time``: a garbage 1970 must not hold W."""
        return self.feed.min_time if lo is None else max(lo, self.feed.min_time)

    def _bound(self, turn: _Turn, floor: int) -> int:
        """L of the next range. What the file's other parts were planned with binds it, not a floor that has risen since."""
        if self.feed.snapshot:
            return T_MIN
        lower = self._lower(turn.range.lo)
        return max(lower, floor) if turn.last is None else max(lower, turn.last.L)

    def _in_turn(self, candidate: Candidate, eligible: Sequence[Candidate]) -> bool:
        """In-order feeds: every earlier file is done, or proved unable to raise the floor above this one's lower bound."""
        if not self.in_order or self.closed or self.feed.snapshot:
            return True
        path, lo = candidate.file.path, candidate.plan.ranges[0].lo
        highs = {other.file.path: other.plan.hi for other in eligible if other.file.path < path}
        highs |= {file: self._last[file].hi for file in self._unfinished if file < path}
        return all(
            lo is not None and high is not None and high - self._slack <= self._lower(lo) for high in highs.values()
        )

    def _split(self, turn: _Turn, floor: int, now_us: int, seq: int) -> Split:
        file, plan, part, last = turn.candidate.file, turn.candidate.plan, turn.range, turn.last
        L = self._bound(turn, floor)
        following = part.next
        # The bound of a file without statistics lies ``disorder`` before its first row: only that row shows that some are late.
        first = None if part.lo is None else part.lo + (self.feed.disorder if plan.judged_by_rows else 0)
        late = self.closed or (first is not None and self._lower(first) < L)
        return Split(
            id=f"{file.path}#{int(last.id.rpartition('#')[2]) + 1 if last else 0}",
            seq=seq,
            file=file.path,
            size=file.size,
            mtime_us=file.mtime_us,
            fp=turn.candidate.fp,
            begin=part.begin,
            end=part.end,
            first_row=part.first_row,
            first_line=part.first_line,
            L=L,
            judged_by_rows=plan.judged_by_rows and not self.feed.snapshot,
            plan_time_us=now_us,
            late=late and last is None and not self.feed.snapshot,
            hi=last.hi if last else plan.hi,
            next=[following.begin, following.row, following.line, following.newest] if following else None,
        )


def eligible_files(
    files: Sequence[FoundFile],
    planned: Mapping[str, object],
    known: frozenset[str],
    *,
    in_order: bool,
    young_after_us: int,
) -> tuple[list[FoundFile], bool]:
    """(files that may be begun, whether one was held back). A file changed after ``young_after_us`` is young. An in-order
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
