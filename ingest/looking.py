"""Listing a folder and looking into its files, so that a turn of the planner stays short however many files there are."""

from __future__ import annotations

import heapq
import itertools
from collections import deque
from collections.abc import Container
from dataclasses import replace

from experiments.feed import Feed
from ingest.contracts import Config
from ingest.errors import FileRejected
from ingest.formats.build import format_of
from ingest.formats.reading import UNREADABLE, Start
from ingest.plan import Candidate, Listed, Plan, eligible_files
from ingest.sources import Folder, FoundFile, Listing
from ingest.verdicts import limit_of
from streams.contracts import Clock
from streams.errors import Unreachable

TURN_S = 0.5
"""A turn looks into files for so long; the rest waits for the next turn."""


class Queue:
    """Files by (bound, path), where the bound is the file's lower bound or the floor, whichever is newer. The floor only rises,
    so each file moves at most once: from those above the floor, by bound, to those at the floor, by path."""

    def __init__(self) -> None:
        self._above: list[tuple[int, str, Candidate]] = []
        self._at: list[tuple[str, Candidate]] = []

    def add(self, candidate: Candidate, lowest: int) -> None:
        """A path is added once."""
        heapq.heappush(self._above, (lowest, candidate.file.path, candidate))

    def least(self, count: int, floor: int, planned: Container[str]) -> list[Candidate]:
        """The first ``count`` that are not planned. Those that are planned are dropped for good."""
        while self._above and self._above[0][0] <= floor:
            _, path, candidate = heapq.heappop(self._above)
            heapq.heappush(self._at, (path, candidate))
        at: list[tuple[str, Candidate]] = []
        while self._at and len(at) < count:
            first = heapq.heappop(self._at)
            at += [first] if first[0] not in planned else []
        above: list[tuple[int, str, Candidate]] = []
        while self._above and len(at) + len(above) < count:
            next_one = heapq.heappop(self._above)
            above += [next_one] if next_one[1] not in planned else []
        for one in at:
            heapq.heappush(self._at, one)
        for other in above:
            heapq.heappush(self._above, other)
        return [candidate for _, candidate in at] + [candidate for _, _, candidate in above]


class Looker:
    """Lists the folder of a feed and looks into its files. What was seen in a file is kept while the file stays as it is."""

    def __init__(self, feed: Feed, folder: str, config: Config, clock: Clock) -> None:
        self._feed, self._config, self._clock = feed, config, clock
        self._folder = Folder(folder, feed.files.match)
        self._format = format_of(feed, config)
        self._looked: dict[tuple[FoundFile, int], Candidate] = {}
        self._known: frozenset[str] = frozenset()
        self._listing = Listing([])
        self._changed = 0
        self._unlooked: deque[FoundFile] = deque()
        self._failed: dict[str, str] = {}
        self._written: dict[str, str] = {}
        self._queue = Queue()
        self._young = False
        self._trouble = ""
        self.listing_s = 0.0
        """What the last listing took."""
        self.away = False
        """Whether the last listing failed."""
        self.more = False
        """Whether there are files that no turn looked into yet."""

    @property
    def skipped(self) -> list[str]:
        """Names of markers, checksums and unfinished copies of the last listing."""
        return self._listing.skipped

    @property
    def unmatched(self) -> list[str]:
        """Names of the last listing that do not match."""
        return self._listing.unmatched

    def forget(self) -> None:
        """Begin anew: nothing was listed yet."""
        self._known, self._young, self.more = frozenset(), True, False
        self._unlooked, self._failed, self._written, self._queue = deque(), {}, {}, Queue()

    def look(self, plan: Plan, *, fresh: bool) -> Listed:
        """List if ``fresh``, and look into some files."""
        if fresh:
            begun_s = self._clock.monotonic_s()
            try:
                self._list(plan)
                self.away = False
            except Unreachable as error:
                self.away = True
                return Listed(fresh=True, trouble=str(error))
            finally:
                self.listing_s = self._clock.monotonic_s() - begun_s
        listed = Listed(fresh=fresh, young=self._young, changed=self._changed)
        if self._feed.snapshot and plan.closed:
            listed.unused = [file.path for file in self._listing.files if file.path not in plan.files]
            return listed
        troubles = [self._trouble]
        for file, fp, start in plan.rests():
            rest, text = self._candidate(file, start, fp)
            listed.rests += [rest] if rest else []
            troubles.append(text)
        troubles.append(self._next_in_order(plan, listed) if plan.in_order else self._least(plan, listed))
        listed.young |= bool(self._written)
        listed.trouble = next(filter(None, [*troubles, *self._written.values()]), "")
        return listed

    def _next_in_order(self, plan: Plan, listed: Listed) -> str:
        """The next files by path; what keeps the first of them from being opened."""
        while self._unlooked and self._unlooked[0].path in plan.files:
            self._unlooked.popleft()
        wanted = itertools.islice(self._unlooked, 2 * self._config.open_splits)
        for file in [file for file in wanted if file.path not in plan.files]:
            candidate, text = self._candidate(file, Start(), "")
            if candidate is None:
                listed.young = True
                return text
            listed.eligible.append(candidate)
        listed.young |= len(listed.eligible) < len(self._unlooked)
        return ""

    def _least(self, plan: Plan, listed: Listed) -> str:
        """The files with the least bounds, once all were looked into; what keeps one from being opened."""
        until_s = self._clock.monotonic_s() + TURN_S
        while self._unlooked and self._clock.monotonic_s() <= until_s:
            file = self._unlooked.popleft()
            candidate, text = self._candidate(file, Start(), "")
            if candidate is None and file.path in self._written:
                continue  # looked at again after the next listing
            if candidate is None:
                self._failed[file.path] = text  # tried again at the next listing
            else:
                self._queue.add(candidate, plan.lowest(candidate))
        self.more = bool(self._unlooked)
        if self.more or self._failed:
            listed.young = True
        else:
            listed.eligible = self._queue.least(self._config.open_splits + 1, plan.floor.floor, plan.files)
        return next(filter(None, self._failed.values()), "")

    def _list(self, plan: Plan) -> None:
        found = self._listing = self._folder.list()
        settle = self._folder.settle_us if self._feed.settle is None else self._feed.settle
        eligible, self._young = eligible_files(
            found.files, plan.files, self._known, in_order=plan.in_order, young_after_us=self._clock.wall_us() - settle
        )
        self._known = frozenset(file.path for file in found.files)
        self._changed = plan.changed(found.files)
        looked, self._looked = self._looked, {}
        self._unlooked, self._failed, self._written, self._queue = deque(), {}, {}, Queue()
        for file, start in [*((file, 0) for file in eligible), *((file, rest.begin) for file, _, rest in plan.rests())]:
            if (candidate := looked.get((file, start))) is not None:
                self._looked[file, start] = candidate
        for file in eligible:
            seen = None if plan.in_order else self._looked.get((file, 0))
            if seen is None:
                self._unlooked.append(file)
            else:
                self._queue.add(seen, plan.lowest(seen))
        self._trouble = ""
        if found.missing:
            self._trouble = f"for the folder {self._folder.url}: it is not there; make it, or correct files.url"
        elif not found.files and not plan.files and found.unmatched:
            self._young = True
            self._trouble = (
                f"for files: {len(found.unmatched)} lie in {self._folder.url} (such as {found.unmatched[0]}), none matches "
                f"files.match {self._feed.files.match!r} (**/* would match in all folders below)"
            )

    def _candidate(self, file: FoundFile, start: Start, fp: str) -> tuple[Candidate | None, str]:
        """A file looked into once, while it stays as it is; without one: why it cannot be opened now."""
        key = (file, start.begin)
        if key in self._looked:
            return self._looked[key], ""
        limit = limit_of(self._clock.wall_us(), self._feed.max_future)
        try:
            if fp and (now := self._folder.stat(file.path)) != file:
                if now is None and not self._folder.reachable():
                    return None, f"for the folder {self._folder.url}: it is not there"
                raise FileRejected("file-changed", "changed since it was planned")
            if not fp and (why := self._folder.why_open(file)):
                self._written[file.path] = f"for {why}"
                return None, self._written[file.path]
            fp = fp or self._folder.fingerprint(file)
            found = self._format.plan(self._folder, file, start, limit)
        except FileRejected:
            found = UNREADABLE  # the reader finds the same, rejects the file, and it is counted
            if start.begin:
                part = replace(UNREADABLE.ranges[0], begin=start.begin, first_row=start.row, first_line=start.line)
                found = replace(UNREADABLE, ranges=(part,))
        except FileNotFoundError:
            return None, "" if not fp else f"for {file.path}: it is gone"
        except OSError as error:
            return None, f"for {file.path}: {error}"
        self._looked[key] = Candidate(file, found, fp)
        return self._looked[key], ""
