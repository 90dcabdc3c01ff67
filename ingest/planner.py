"""The planner of a feed: lists its folder, plans splits, and is the only one that writes W.

One is active at a time: the member of the group ``plan.<feed>`` that owns ``floor.<feed>``. The others stand by.
Its transactional id fences whoever was active before.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from experiments import names
from experiments.feed import Feed
from ingest.contracts import BEHIND, WATERMARK, Config, Downstream
from ingest.looking import Looker
from ingest.plan import Decision, Plan
from ingest.records import Floor, Progress, Split
from streams.contracts import Clock, Consumer, Log, Producer, TopicPartition
from streams.errors import Fenced, HeadraceError, UnknownOutcome
from streams.killpoints import reached
from streams.packed import control
from streams.tail import Follower

SOON_S = 0.2
"""Between listings while something is going on."""

STAND_BY_S = 1.0
"""A planner that was fenced leaves the field to the other for so long."""

LISTING_SHARE = 10
"""The time between two listings is at least so many times what a listing takes, unless the next one is all that is waited for."""

SAY_AGAIN_S = 10.0
"""Between two records that differ only in how far a group is behind; and how long files hold each other up before it is said."""


class Planner:
    """A ``Worker``. Any number may run; one is active.

    Args:
        folder: where the files are: local path or URL.
        may_close: whether the feed shall be closed once nothing is left to plan (asked at each turn; not for snapshots, which
            close by themselves).
        lag_groups: consumers downstream of the feed, whose lag holds up planning.
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
        lag_groups: Callable[[], Sequence[Downstream]],
    ) -> None:
        self._log, self._feed, self._config, self._clock = log, feed, config, clock
        self._may_close, self._lag_groups = may_close, lag_groups
        self._looker = Looker(feed, folder, config, clock)
        self._group: Consumer | None = None
        self._lead: Lead | None = None
        self._not_before_s = 0.0
        self._next_listing_s = 0.0

    def step(self) -> bool:
        """One turn: read progress, list if it is time, decide, write. ``False`` if nothing was written."""
        if self._group is None:
            if self._log.topic(names.floor(self._feed.feed)) is None:
                return False
            self._group = self._log.consumer(f"plan.{self._feed.feed}")
            self._group.subscribe([names.floor(self._feed.feed)], self)
        self._group.poll(1, 0.0)
        if not self._group.assignment() or self._clock.monotonic_s() < self._not_before_s:
            return False
        try:
            if self._lead is None:
                self._lead = Lead(self._log, self._feed, self._config, self._clock)
                self._looker.forget()
                self._next_listing_s = 0.0
            return self._turn(self._lead)
        except (Fenced, UnknownOutcome):
            self._resign()
            self._not_before_s = self._clock.monotonic_s() + STAND_BY_S
            return True
        except HeadraceError:
            self._resign()
            raise

    def on_revoked(self, partitions: Iterable[TopicPartition]) -> None:
        """Called by the consumer: another planner is active now."""
        self._resign()

    def on_assigned(self, partitions: Iterable[TopicPartition]) -> None:
        """Called by the consumer."""

    @property
    def quiet(self) -> bool:
        """Whether this planner has looked at the folder twice and found nothing to do; one that stands by is quiet too."""
        return self._lead is None or self._lead.plan.calm_turns >= 2

    def report(self) -> dict[str, object]:
        """Whether this planner is active, what it skipped, and what troubles it."""
        lead = self._lead
        return {
            "stage": "plan",
            "feed": self._feed.feed,
            "active": lead is not None,
            "open_splits": len(lead.plan.open_splits()) if lead else 0,
            "skipped": self._looker.skipped[:20],
            "unmatched": self._looker.unmatched[:20],
            "waiting": lead.plan.floor.waiting if lead else "",
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
        fresh = now_s >= self._next_listing_s
        if not (fresh or moved or self._looker.more):
            return False
        listed = self._looker.look(lead.plan, fresh=fresh)
        reached("ingest.P3")
        wanted = bool(listed.eligible or listed.rests) and not self._feed.snapshot
        decision = lead.plan.decide(
            listed,
            lag=self._lag() if wanted else "",
            may_close=self._may_close(),
            now_us=self._clock.wall_us(),
        )
        if fresh:
            settled = lead.plan.calm_turns >= 2
            pause_s = self._config.listing_s if settled else min(SOON_S, self._config.listing_s)
            urgent = not (settled or self._looker.more or lead.plan.open_splits() or decision.splits)
            share = 1 if urgent or self._looker.away else LISTING_SHARE
            self._next_listing_s = now_s + max(pause_s, (1 + share) * self._looker.listing_s)
        return lead.write(decision)

    def _lag(self) -> str:
        """The slowest live group if it is further behind than allowed, in words; empty otherwise."""
        worst = ("", 0)
        for consumer in self._lag_groups():
            positions = self._log.group(consumer.group).positions
            total = 0
            for p in range(consumer.partitions):
                tp = TopicPartition(consumer.topic, p)
                position = positions.get(tp)
                body = json.loads(position.metadata) if position and position.metadata else {}
                total += self._log.bytes_after(tp, int(body.get("pos", position.offset if position else 0)))
            worst = max(worst, (consumer.group, total), key=lambda item: item[1])
        limit = self._config.max_lag_bytes
        if worst[1] <= limit:
            return ""
        return (
            f"{BEHIND}{worst[0]}: it is {_size(worst[1])} behind, the limit is {_size(limit)} (setting ingest.max_lag)"
        )


def _size(count: int) -> str:
    return f"{count >> 20} MiB" if count >> 20 else f"{count} bytes"


class Lead:
    """The active planner's producer and its view of the plan (P1, P2)."""

    def __init__(self, log: Log, feed: Feed, config: Config, clock: Clock) -> None:
        self._feed, self._clock, self._said_s = feed, clock, 0.0
        self._moved_s = clock.monotonic_s()
        self._producer: Producer = log.producer(f"plan.{feed.feed}")  # Step P1: fences the one before
        reached("ingest.P1")
        self.plan = Plan(feed, config)
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
        if records:
            self._moved_s = self._clock.monotonic_s()
        return bool(records)

    def write(self, decision: Decision) -> bool:
        """One transaction with the splits, the floor and W (P5); nothing if nothing changed."""
        floor = decision.floor
        if decision.held and self._clock.monotonic_s() >= self._moved_s + SAY_AGAIN_S:
            floor = replace(floor, waiting=decision.held)
        if not decision.splits and self._is_old(floor):
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
        assert all(split.L >= self._written.W for split in decision.splits) or self._feed.snapshot
        reached("ingest.P4")
        producer.commit()
        reached("ingest.P5")
        for split in decision.splits:
            self.plan.add_split(split)
        self.plan.add_floor(floor)
        self._written = floor
        return True

    def _is_old(self, floor: Floor) -> bool:
        """Whether people and workers would learn nothing from this record."""
        before, now_s = self._written, self._clock.monotonic_s()
        if floor.waiting and before.waiting and now_s < self._said_s + SAY_AGAIN_S:
            before = replace(before, waiting=floor.waiting)
        if floor == before:
            return True
        self._said_s = now_s
        return False

    def close(self) -> None:
        """Release."""
        self._progress.close()
        self._producer.close()

    def _partitions(self, log: Log, topic: str) -> int:
        info = log.topic(topic)
        assert info is not None
        return info.spec.partitions
