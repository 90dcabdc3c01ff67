"""A reader: takes splits of a feed in turn and turns their rows into messages of ``raw``, dead letters, and late rows.

Every transaction, also in the middle of a split, holds rows + dead letters + late rows + progress + the offset commit with the
group's fence: so each row appears once, however often readers die.
"""

from __future__ import annotations

import itertools
import json
import secrets
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa

from experiments import names
from experiments.feed import Feed
from ingest.contracts import ROWS, T_MIN, Config, raw_schema
from ingest.errors import FileRejected
from ingest.formats.build import format_of
from ingest.formats.reading import STAGE, Part
from ingest.partition import spread_of
from ingest.records import Progress, Split, encode_resume
from ingest.sources import Folder, FoundFile
from ingest.verdicts import Bounds, judge, limit_of, times_us
from streams.contracts import Clock, Consumer, Log, Position, Producer, Record, TopicPartition
from streams.dead_letters import DeadLetter, pack_letters
from streams.errors import Busy, Rebalanced, UnknownOutcome
from streams.killpoints import reached
from streams.packed import pack

POLL_BYTES = 64 * 1024
RETRY_S = 1.0


@dataclass
class Work:
    """The split at the head of one partition.

    Args:
        record: its record in ``splits``. split: decoded. maxseen, attempts, resume: where it stands.
        parts: open iterator, if this reader reads it. begun: rows were read by an earlier transaction.
    """

    record: Record
    split: Split
    maxseen: int = T_MIN
    attempts: int = 0
    resume: dict[str, Any] | None = None
    parts: Iterator[Part] | None = None
    retry_at_s: float = 0.0


@dataclass
class Outcome:
    """Rows of a part after the verdicts."""

    used: pa.RecordBatch
    late: pa.RecordBatch
    letters: list[DeadLetter]
    rows: int
    maxseen: int
    reasons: Counter[str] = field(default_factory=Counter)


class Reader:
    """A ``Worker``: one member of the group ``read.<feed>``. Any number may run; one thread each."""

    def __init__(self, log: Log, feed: Feed, folder: str, config: Config, *, clock: Clock) -> None:
        self._log, self._feed, self._config, self._clock = log, feed, config, clock
        self._folder = Folder(folder, feed.files.match)
        self._format = format_of(feed, config)
        self._schema = raw_schema(feed)
        self._spread = spread_of(feed)
        self._splits = names.splits(feed.feed)
        self._group = names.read_group(feed.feed)
        self._transactional_id = f"{self._group}.{secrets.token_hex(8)}"
        self._consumer: Consumer | None = None
        self._producer: Producer | None = None
        self._committed: dict[TopicPartition, Position | None] = {}
        self._queues: dict[TopicPartition, list[Work]] = {}
        self._unplaced: set[TopicPartition] = set()
        self._in_doubt = False
        self._counts: Counter[str] = Counter()

    def step(self) -> bool:
        """Read at most one part of one split and commit it.

        Raises:
            Exhausted: the log is full, or a row is larger than a message may be.
        """
        if self._log.topic(self._splits) is None:
            return False
        consumer, producer = self._open()
        try:
            if self._in_doubt:
                self._forget(consumer, producer)
            self._in_doubt = True
            self._fetch(consumer)
            work = self._next()
            worked = work is not None and self._advance(consumer, producer, work)
            self._in_doubt = False
            return worked
        except (Rebalanced, Busy):
            return True
        except UnknownOutcome:
            producer.close()
            self._producer = None
            return True

    def on_revoked(self, partitions: Iterable[TopicPartition]) -> None:
        """Called by the consumer."""
        for tp in partitions:
            self._queues.pop(tp, None)
            self._unplaced.discard(tp)

    def on_assigned(self, partitions: Iterable[TopicPartition]) -> None:
        """Called by the consumer."""
        self._unplaced.update(partitions)

    def report(self) -> dict[str, object]:
        """What this reader did: rows, bytes, by verdict; and the splits at hand."""
        heads = [queue[0].split.id for queue in self._queues.values() if queue]
        return {"stage": "read", "feed": self._feed.feed, "splits": heads, **self._counts}

    def close(self) -> None:
        """Leave the group."""
        if self._consumer:
            self._consumer.close()
        if self._producer:
            self._producer.close()
        self._consumer = self._producer = None
        self._queues.clear()

    # -- splits

    def _open(self) -> tuple[Consumer, Producer]:
        if self._producer is None:
            self._producer = self._log.producer(self._transactional_id)
        if self._consumer is None:
            self._consumer = self._log.consumer(self._group)
            self._consumer.subscribe([self._splits], self)
        return self._consumer, self._producer

    def _forget(self, consumer: Consumer, producer: Producer) -> None:
        producer.abort()
        self._queues.clear()
        self._unplaced = set(consumer.assignment())

    def _fetch(self, consumer: Consumer) -> None:
        records = consumer.poll(POLL_BYTES, 0.0)
        fresh = frozenset(self._unplaced)
        if fresh:
            for tp, position in consumer.committed(sorted(fresh)).items():
                self._committed[tp] = position
                self._queues[tp] = []
                consumer.seek(tp, position.offset if position else 0)
            self._unplaced.clear()
        for record in records:
            if record.tp in self._queues and record.tp not in fresh:
                self._queues[record.tp].append(self._work(record))

    def _work(self, record: Record) -> Work:
        work = Work(record, Split.decode(record))
        position = self._committed.get(record.tp)
        body = json.loads(position.metadata) if position and position.metadata else {}
        if body.get("split") == work.split.id:
            work.maxseen, work.attempts, work.resume = int(body["maxseen"]), int(body["attempts"]), body["resume"]
        return work

    def _next(self) -> Work | None:
        """The lowest split at the head of a partition that is not waiting to be tried again."""
        now = self._clock.monotonic_s()
        heads = [queue[0] for queue in self._queues.values() if queue and queue[0].retry_at_s <= now]
        return min(heads, key=lambda work: work.split.seq, default=None)

    # -- one part

    def _advance(self, consumer: Consumer, producer: Producer, work: Work) -> bool:
        try:
            if work.parts is None:
                self._begin(consumer, producer, work)
            assert work.parts is not None
            part = next(work.parts, None)
        except FileRejected as error:
            self._commit(consumer, producer, work, self._rejected(work, error), done=True)
            return True
        except OSError as error:
            if work.attempts >= self._config.attempts:
                rejected = FileRejected("unreadable", f"tried {work.attempts} times: {error}")
                self._commit(consumer, producer, work, self._rejected(work, rejected), done=True)
                return True
            work.parts, work.retry_at_s = None, self._clock.monotonic_s() + RETRY_S
            return False
        if part is None:
            self._commit(consumer, producer, work, None, done=True)
            return True
        part = _without_skipped(part, work.resume)
        for piece in _bounded(part, self._config.part_bytes, work.resume):
            outcome = self._judge(work, piece)
            work.maxseen, work.resume = outcome.maxseen, piece.resume
            self._commit(consumer, producer, work, outcome, done=False)
        return True

    def _begin(self, consumer: Consumer, producer: Producer, work: Work) -> None:
        """Count the attempt before anything is opened (Step R2): a file that kills the process must not do so for ever."""
        if work.attempts >= self._config.attempts:
            raise FileRejected("too-many-attempts", f"begun {work.attempts} times without an end")
        work.attempts += 1
        producer.begin()
        producer.send_offsets(consumer.membership(), {work.record.tp: self._position(work)})
        producer.commit()
        reached("ingest.R2")
        split = work.split
        now = self._folder.stat(split.file)
        if now is None:
            raise FileNotFoundError(f"{split.file} is gone")
        planned = FoundFile(split.file, split.size, split.mtime_us)
        if now != planned or self._folder.fingerprint(now) != split.fp:
            detail = f"expected the file as it was planned ({split.size} bytes), got {now.size} bytes, changed since"
            raise FileRejected("file-changed", detail)
        work.parts = self._format.read(self._folder, split, work.resume)

    def _rejected(self, work: Work, error: FileRejected) -> Outcome:
        letter = DeadLetter(STAGE, error.reason, error.detail, work.split.file, -1, error.row, -1, error.raw)
        empty = self._schema.empty_table().to_batches()
        nothing = empty[0] if empty else pa.RecordBatch.from_pylist([], self._schema)
        return Outcome(nothing, nothing, [letter], 0, work.maxseen)

    def _judge(self, work: Work, part: Part) -> Outcome:
        """Verdict of each row (R3)."""
        batch, letters = part.batch, list(part.letters)
        usable = np.ones(batch.num_rows, np.bool_)
        for name in self._feed.key:
            valid = batch.column(name).is_valid().to_numpy(zero_copy_only=False)
            self._letters(letters, work, part, usable & ~valid, "null-key", f"column {name}: expected a key, got null")
            usable &= valid
        event_time = self._feed.event_time
        if event_time is None:
            times, late, maxseen = np.zeros(batch.num_rows, np.int64), np.zeros(batch.num_rows, np.bool_), work.maxseen
        else:
            column = event_time.column
            times, timed = times_us(batch.column(column), event_time)
            self._letters(
                letters, work, part, usable & ~timed, "bad-time", f"column {column}: expected a time, got null or NaN"
            )
            usable &= timed
            split = work.split
            limit = limit_of(split.plan_time_us, self._feed.max_future)
            bounds = Bounds(split.L, self._feed.disorder if split.judged_by_rows else None, limit)
            judged = judge(times, usable, bounds, work.maxseen)
            detail = f"column {column}: expected a time before the file was planned plus max_future"
            self._letters(letters, work, part, judged.future_N, "future-time", detail)
            usable, late, maxseen = judged.used_N, judged.late_N, judged.maxseen
        whole = pa.RecordBatch.from_arrays(
            [*batch.columns, pa.array(times), pa.array(part.rows_N)], schema=self._schema
        )
        used = whole if usable.all() else whole.filter(pa.array(usable))
        return Outcome(used, whole.filter(pa.array(late)), letters, batch.num_rows + len(part.letters), maxseen)

    def _letters(
        self, letters: list[DeadLetter], work: Work, part: Part, mask: np.ndarray, reason: str, detail: str
    ) -> None:
        for at in np.flatnonzero(mask).tolist():
            raw = json.dumps(part.batch.slice(at, 1).to_pylist()[0], default=str).encode()[
                : self._config.dead_letter_bytes
            ]
            letters.append(DeadLetter(STAGE, reason, detail, work.split.file, -1, int(part.rows_N[at]), -1, raw))

    # -- writing

    def _commit(
        self, consumer: Consumer, producer: Producer, work: Work, outcome: Outcome | None, *, done: bool
    ) -> None:
        """One transaction (R4): rows, dead letters, late rows, progress, and the offset with the group's fence."""
        feed, file = self._feed.feed, work.split.file
        producer.begin()
        counts: Counter[str] = Counter()
        if outcome is not None:
            counts = self._send(producer, work, outcome)
        reasons = dict(Counter(letter.reason for letter in outcome.letters)) if outcome else {}
        progress = Progress(
            work.split.id,
            file,
            work.maxseen,
            done,
            counts["rows"],
            counts["used"],
            counts["rejected"],
            counts["late"],
            reasons,
        )
        producer.send(names.progress(feed), 0, progress.encode())
        reached("ingest.R3")
        producer.send_offsets(consumer.membership(), {work.record.tp: self._position(work, done=done)})
        producer.commit()
        reached("ingest.R4")
        self._counts.update(counts)
        if done:
            self._queues[work.record.tp].pop(0)

    def _send(self, producer: Producer, work: Work, outcome: Outcome) -> Counter[str]:
        feed = self._feed
        lineage = {"file": work.split.file, "split": work.split.id}
        numbers = outcome.used.column(outcome.used.num_columns - 1).to_numpy()
        for p, rows in self._spread.divide(outcome.used, work.split.file, numbers):
            self._send_rows(producer, names.raw(feed.feed), p, rows, lineage)
        if outcome.late.num_rows:
            self._send_rows(producer, names.late(feed.feed), 0, outcome.late, lineage)
        if outcome.letters:
            letters = pack_letters(outcome.letters)
            producer.send(names.dead_letters(feed.feed), 0, letters.value, headers=letters.headers)
        rejected = sum(1 for letter in outcome.letters if letter.position >= 0 and letter.reason not in FILE_REASONS)
        used, late = outcome.used.num_rows, outcome.late.num_rows
        return Counter(rows=used + late + rejected, used=used, late=late, rejected=rejected)

    def _send_rows(self, producer: Producer, topic: str, p: int, rows: pa.RecordBatch, lineage: dict[str, str]) -> None:
        times, numbers = rows.column(rows.num_columns - 2).to_numpy(), rows.column(rows.num_columns - 1).to_numpy()
        packed = pack(
            rows,
            kind=ROWS,
            times=(int(times.min()), int(times.max())),
            lineage=lineage | {"rows": [int(numbers[0]), int(numbers[-1])]},
            compression=self._config.raw_compression,
        )
        producer.send(topic, p, packed.value, headers=packed.headers)

    def _position(self, work: Work, *, done: bool = False) -> Position:
        if done:
            return Position(work.record.offset + 1)
        body = {"split": work.split.id, "maxseen": work.maxseen, "attempts": work.attempts, "resume": work.resume}
        return Position(work.record.offset, encode_resume(body))


FILE_REASONS = frozenset(
    {
        "not-parquet",
        "damaged-parquet",
        "damaged-gzip",
        "missing-column",
        "bad-header",
        "unreadable",
        "file-changed",
        "too-many-attempts",
    }
)
"""Reasons that tell of a file, not of a row: they count as no row, since nobody knows how many rows are lost."""


def _bounded(part: Part, max_bytes: int, began: dict[str, Any] | None) -> Iterator[Part]:
    """A part divided so that no piece is above ``max_bytes`` (a single row may be).

    Letters go with the last piece, and until then reading resumes at the part's beginning (``began``) and skips the rows that
    are committed: so neither is committed twice.
    """
    rows = part.batch.num_rows
    pieces = max(1, min(rows, -(-part.batch.nbytes // max_bytes)))
    edges = np.linspace(0, rows, pieces + 1).astype(np.int64).tolist()
    for number, (begin, end) in enumerate(itertools.pairwise(edges), 1):
        last = number == pieces
        resume = part.resume if last else (began or {}) | {"skip": int(part.rows_N[end - 1]) + 1}
        yield replace(
            part,
            batch=part.batch.slice(begin, end - begin),
            rows_N=part.rows_N[begin:end],
            letters=part.letters if last else [],
            resume=resume,
        )


def _without_skipped(part: Part, resume: dict[str, Any] | None) -> Part:
    """A part without the rows that an earlier transaction has committed."""
    keep = part.rows_N >= int((resume or {}).get("skip", 0))
    return part if keep.all() else replace(part, batch=part.batch.filter(pa.array(keep)), rows_N=part.rows_N[keep])
