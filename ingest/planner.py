"""The planner of a feed: lists its folder, plans splits, and is the only one that writes W.

One is active at a time: the member of the group ``plan.<feed>`` that owns ``floor.<feed>``. The others stand by.
Its transactional id fences whoever was active before.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence

from experiments import names
from experiments.feed import Feed
from ingest.contracts import WATERMARK, Config
from ingest.errors import FileRejected
from ingest.formats.build import format_of
from ingest.formats.reading import FilePlan, Range
from ingest.plan import Candidate, Decision, Listed, Plan, eligible_files
from ingest.records import Floor, Progress, Split
from ingest.sources import Folder, FoundFile
from streams.contracts import Clock, Consumer, Log, Producer, TopicPartition
from streams.errors import Fenced, UnknownOutcome, Unreachable
from streams.killpoints import reached
from streams.packed import control
from streams.tail import Follower

SOON_S = 0.2
"""Between listings while something is going on."""


class Planner:
    """A ``Worker``. Any number may run; one is active.

    Args:
        folder: where the files are: local path or URL.
        may_close: whether the feed shall be closed once nothing is left to plan (asked at each turn; not for snapshots, which
            close by themselves).
        lag_groups: groups that read ``raw.<feed>`` and whose lag holds up planning.
    """

    def __init__(
        self,
        log: Log,
        feed: Feed,
        folder: str,
        config: Config,
        *,
        clock: Clock,
        may_close: Callable[[], bool],
        lag_groups: Callable[[], Sequence[str]],
    ) -> None:
        self._log, self._feed, self._config, self._clock = log, feed, config, clock
        self._may_close, self._lag_groups = may_close, lag_groups
        self._folder = Folder(folder, feed.files.match)
        self._format = format_of(feed, config)
        self._group: Consumer | None = None
        self._lead: Lead | None = None
        self._candidates: dict[tuple[str, int, int], Candidate] = {}
        self._known: frozenset[str] = frozenset()
        self._next_listing_s = 0.0
        self._skipped: list[str] = []
        self._trouble = ""

    def step(self) -> bool:
        """One turn: read progress, list if it is time, decide, write. ``False`` if nothing was written."""
        if self._group is None:
            if self._log.topic(names.floor(self._feed.feed)) is None:
                return False
            self._group = self._log.consumer(f"plan.{self._feed.feed}")
            self._group.subscribe([names.floor(self._feed.feed)], self)
        self._group.poll(1, 0.0)
        if not self._group.assignment():
            return False
        try:
            if self._lead is None:
                self._lead = Lead(self._log, self._feed, self._config)
                self._known, self._next_listing_s = frozenset(), 0.0
            return self._turn(self._lead)
        except (Fenced, UnknownOutcome):
            self._resign()
            return True

    def on_revoked(self, partitions: Iterable[TopicPartition]) -> None:
        """Called by the consumer: another planner is active now."""
        self._resign()

    def on_assigned(self, partitions: Iterable[TopicPartition]) -> None:
        """Called by the consumer."""

    def report(self) -> dict[str, object]:
        """Whether this planner is active, what it skipped, and what troubles it."""
        lead = self._lead
        return {
            "stage": "plan",
            "feed": self._feed.feed,
            "active": lead is not None,
            "open_splits": len(lead.plan.open_splits()) if lead else 0,
            "skipped": self._skipped[:20],
            "waiting": self._trouble or (lead.plan.floor.waiting if lead else ""),
        }

    def close(self) -> None:
        """Leave the group."""
        self._resign()
        if self._group is not None:
            self._group.close()
            self._group = None

    def _resign(self) -> None:
        if self._lead is not None:
            self._lead.close()
            self._lead = None

    def _turn(self, lead: Lead) -> bool:
        moved = lead.follow()
        now_s = self._clock.monotonic_s()
        if now_s < self._next_listing_s and not (moved and lead.waits):
            return moved and lead.write(lead.plan.decide(Listed(young=True), lag="", may_close=False, now_us=0))
        try:
            listed = self._listing(lead.plan)
        except Unreachable as error:
            self._trouble = str(error)
            return False
        self._trouble = ""
        lag = "" if self._feed.snapshot else self._lag()
        decision = lead.plan.decide(listed, lag=lag, may_close=self._may_close(), now_us=self._clock.wall_us())
        lead.waits = len({split.file for split in decision.splits}) < len(listed.eligible)
        settled = decision.floor.calm or decision.floor.closed
        self._next_listing_s = now_s + (self._config.listing_s if settled else min(SOON_S, self._config.listing_s))
        return lead.write(decision)

    # -- listing

    def _listing(self, plan: Plan) -> Listed:
        found = self._folder.list()
        self._skipped = found.skipped
        if self._feed.snapshot and plan.closed:
            return Listed(late=[file.path for file in found.files if file.path not in plan.files])
        settle = self._folder.settle_us if self._feed.settle is None else self._feed.settle
        files, young = eligible_files(
            found.files, plan.files, self._known, in_order=plan.in_order, young_after_us=self._clock.wall_us() - settle
        )
        self._known = frozenset(file.path for file in found.files)
        candidates = []
        for file in files:
            candidate = self._candidate(file)
            if candidate is None:
                young = True
                if plan.in_order:
                    break
                continue
            candidates.append(candidate)
            if len(candidates) >= 2 * self._config.open_splits and plan.in_order:
                break
        return Listed(candidates, young)

    def _candidate(self, file: FoundFile) -> Candidate | None:
        """A file looked into once, while it stays as it is; ``None`` if it cannot be opened now."""
        key = (file.path, file.size, file.mtime_us)
        if key not in self._candidates:
            try:
                fp = self._folder.fingerprint(file)
                plan = self._format.plan(self._folder, file)
            except FileRejected:
                plan = FilePlan((Range(0, -1, 0),), None, None, judged_by_rows=True)  # the reader rejects it, counted
            except OSError as error:
                self._trouble = f"{file.path}: {error}"
                return None
            self._candidates[key] = Candidate(file, plan, fp)
        return self._candidates[key]

    def _lag(self) -> str:
        """The slowest live group if it is further behind than allowed, in words; empty otherwise."""
        topic = names.raw(self._feed.feed)
        worst = ("", 0)
        for group in self._lag_groups():
            info = self._log.group(group)
            total = 0
            for p in range(self._feed.partitions):
                position = info.positions.get(TopicPartition(topic, p))
                body = json.loads(position.metadata) if position and position.metadata else {}
                pos = int(body.get("pos", position.offset if position else 0))
                total += self._log.bytes_after(TopicPartition(topic, p), pos)
            worst = max(worst, (group, total), key=lambda item: item[1])
        limit = self._config.max_lag_bytes
        if worst[1] <= limit:
            return ""
        return (
            f"for group {worst[0]}: it is {worst[1] >> 20} MiB behind, the limit is {limit >> 20} MiB (ingest.max_lag)"
        )


class Lead:
    """The active planner's producer and its view of the plan (P1, P2)."""

    def __init__(self, log: Log, feed: Feed, config: Config) -> None:
        self._feed = feed
        self._producer: Producer = log.producer(f"plan.{feed.feed}")  # Step P1: fences the one before
        reached("ingest.P1")
        self.plan = Plan(feed, config)
        self.waits = False
        self._progress = Follower(log, names.progress(feed.feed))
        splits = Follower(log, names.splits(feed.feed))
        floor = Follower(log, names.floor(feed.feed))
        for split in sorted((Split.decode(record) for record in splits.new()), key=lambda split: split.seq):
            self.plan.add_split(split)
        for record in floor.new():
            self.plan.add_floor(Floor.decode(record))
        splits.close()
        floor.close()
        self._split_partitions = self._partitions(log, names.splits(feed.feed))
        self._written = self.plan.floor
        self.follow()
        reached("ingest.P2")

    def follow(self) -> bool:
        """Fold new progress; whether there was any."""
        records = self._progress.new()
        for record in records:
            self.plan.add_progress(Progress.decode(record))
        return bool(records)

    def write(self, decision: Decision) -> bool:
        """One transaction with the splits, the floor and W (P5); nothing if nothing changed."""
        floor = decision.floor
        if not decision.splits and floor == self._written:
            return False
        producer = self._producer
        producer.begin()
        for split in decision.splits:
            producer.send(names.splits(self._feed.feed), split.seq % self._split_partitions, split.encode())
        producer.send(names.floor(self._feed.feed), 0, floor.encode())
        if decision.raises_W:
            record = control(WATERMARK, floor.W)
            for p in range(self._feed.partitions):
                producer.send(names.raw(self._feed.feed), p, record.value, headers=record.headers)
        reached("ingest.P4")
        producer.commit()
        reached("ingest.P5")
        for split in decision.splits:
            self.plan.add_split(split)
        self.plan.add_floor(floor)
        self._written = floor
        return True

    def close(self) -> None:
        """Release."""
        self._progress.close()
        self._producer.close()

    def _partitions(self, log: Log, topic: str) -> int:
        info = log.topic(topic)
        assert info is not None
        return info.spec.partitions
