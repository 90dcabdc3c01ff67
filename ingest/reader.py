"""A reader: takes splits of a feed in turn and turns their rows into messages of ``raw``, dead letters, and late rows.

Every transaction, also in the middle of a split, holds rows + dead letters + late rows + progress + the offset commit with the
group's fence: so each row appears once, however often readers die.
"""

from __future__ import annotations

import itertools
import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

from experiments import names
from experiments.feed import Feed
from experiments.fields import format_time
from ingest.ahead import Ahead
from ingest.contracts import T_MIN, Config, raw_schema
from ingest.errors import FileRejected
from ingest.formats.build import format_of
from ingest.formats.reading import STAGE, Part, letter
from ingest.records import Progress, Split, encode_resume
from ingest.sending import Outcome, Sender
from ingest.sources import Folder, FoundFile
from ingest.stores import Away
from ingest.verdicts import Bools, Bounds, judge, limit_of, times_us
from streams.contracts import Clock, Consumer, Log, Position, Producer, Record, TopicPartition
from streams.dead_letters import DeadLetter
from streams.errors import Busy, Fenced, HeadraceError, Rebalanced, UnknownOutcome
from streams.exactly_once import ExactlyOnce
from streams.killpoints import reached

POLL_BYTES = 64 * 1024
RETRY_S, LONGEST_RETRY_S = 0.5, 10.0


@dataclass
class Work:
    """The split at the head of one partition.

    Args:
        record: its record in ``splits``. split: decoded. maxseen, resume: where it stands. attempts: begun since it last moved.
        parts: open iterator, if this reader reads it. retry_at_s: not before.
    """

    record: Record
    split: Split
    maxseen: int = T_MIN
    attempts: int = 0
    resume: dict[str, Any] | None = None
    parts: Iterator[Part] | None = None
    retry_at_s: float = 0.0
    retries: int = 0


class Reader:
    """A ``Worker``: one member of the group ``read.<feed>``. Any number may run; one thread each."""

    def __init__(self, log: Log, feed: Feed, folder: str, config: Config, *, clock: Clock) -> None:
        self._log, self._feed, self._config, self._clock = log, feed, config, clock
        self._folder = Folder(folder, feed.files.match)
        self._format = format_of(feed, config)
        self._schema = raw_schema(feed)
        self._sender = Sender(log, feed, config)
        self._splits = names.splits(feed.feed)
        self._loop = ExactlyOnce(log, names.read_group(feed.feed), [self._splits], self, clock=clock)
        self._committed: dict[TopicPartition, Position | None] = {}
        self._queues: dict[TopicPartition, list[Work]] = {}
        self._counts: Counter[str] = Counter()
        self._trouble = ""
        self._ahead = ThreadPoolExecutor(1, "ahead")

    def step(self) -> bool:
        """Read at most one part of one split and commit it.

        Raises:
            Exhausted: the log is full, or a row is larger than a message may be.
        """
        if self._log.topic(self._splits) is None:
            return False
        return self._loop.turn(self._turn)

    def _turn(self, consumer: Consumer, producer: Producer) -> bool:
        try:
            self._fetch()
            work = self._next()
            return work is not None and self._advance(consumer, producer, work)
        except (Rebalanced, Busy, Fenced, UnknownOutcome):
            raise
        except HeadraceError:
            producer.abort()
            self._give_back(consumer, producer)
            raise

    def place(self, consumer: Consumer, committed: Mapping[TopicPartition, Position | None]) -> None:
        """Partitions that begin at their committed positions."""
        for tp, position in committed.items():
            self._committed[tp] = position
            self._queues[tp] = []
            consumer.seek(tp, position.offset if position else 0)
        reached("ingest.R1")

    def drop(self, partitions: Iterable[TopicPartition]) -> None:
        """Partitions that another reader has now."""
        for tp in partitions:
            self._queues.pop(tp, None)

    def forget(self) -> None:
        """Hold nothing (Step R5)."""
        self._queues.clear()
        reached("ingest.R5")

    def report(self) -> dict[str, object]:
        """What this reader did: rows, bytes, by verdict; and the splits at hand."""
        heads = [queue[0].split.id for queue in self._queues.values() if queue]
        return {"stage": "read", "feed": self._feed.feed, "at": heads, "waiting": self._trouble, **self._counts}

    def close(self) -> None:
        """Leave the group. Attempts that were counted for splits that are open are given back: this was no crash."""
        if opened := self._loop.settled:
            self._give_back(*opened)
        self._loop.close()
        self._queues.clear()
        self._ahead.shutdown(wait=False, cancel_futures=True)

    # -- splits

    def _fetch(self) -> None:
        records, _ = self._loop.read(POLL_BYTES)
        for record in records:
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
            self._check(work.split)
        except FileRejected as error:
            work.parts = None
            self._commit(consumer, producer, work, self._rejected(work, error), done=True)
            return True
        except OSError as error:
            return self._failed(consumer, producer, work, error)
        if part is None:
            self._commit(consumer, producer, work, None, done=True)
            return True
        part = _without_skipped(part, work.resume)
        for piece in _bounded(part, self._config.part_bytes, work.resume):
            outcome = self._judge(work, piece)
            after = replace(work, maxseen=outcome.maxseen, resume=piece.resume, attempts=0)
            self._commit(consumer, producer, after, outcome, done=False)
            work.maxseen, work.resume, work.attempts = after.maxseen, after.resume, 0
        return True

    def _failed(self, consumer: Consumer, producer: Producer, work: Work, error: OSError) -> bool:
        """Try again later, ever more rarely. What keeps failing is rejected, unless the whole folder is away: that costs no rows,
        only time."""
        work.parts, work.retries = None, work.retries + 1
        work.retry_at_s = self._clock.monotonic_s() + min(RETRY_S * 2**work.retries, LONGEST_RETRY_S)
        self._trouble = f"{work.split.file}: {error}"
        if isinstance(error, Away) or not self._folder.reachable():
            work.attempts = max(work.attempts - 1, 0)
            self._count_attempt(consumer, producer, work)  # so that ends during an outage do not add up to a rejection
        elif work.attempts >= self._config.attempts:
            reason = "file-gone" if isinstance(error, FileNotFoundError) else "unreadable"
            rejected = FileRejected(reason, f"tried {work.attempts} times: {error}")
            self._commit(consumer, producer, work, self._rejected(work, rejected), done=True)
            return True
        return False

    def _begin(self, consumer: Consumer, producer: Producer, work: Work) -> None:
        """Count the attempt before anything is opened (Step R2): a file that kills the process must not do so for ever."""
        if work.attempts >= self._config.attempts:
            raise FileRejected("too-many-attempts", f"begun {work.attempts} times without an end")
        work.attempts += 1
        self._count_attempt(consumer, producer, work)
        reached("ingest.R2")
        split = work.split
        self._check(split)
        if self._folder.fingerprint(FoundFile(split.file, split.size, split.mtime_us)) != split.fp:
            raise FileRejected(
                "file-changed", "expected the bytes that were there when the file was planned, got others"
            )
        parts = self._format.read(self._folder, split, work.resume)
        work.parts = Ahead(parts, self._ahead) if self._folder.remote else parts

    def _give_back(self, consumer: Consumer, producer: Producer) -> None:
        """Attempts that were counted for splits that are open: this end is no crash that a file has made."""
        for queue in self._queues.values():
            if queue and queue[0].parts is not None and queue[0].attempts:
                queue[0].attempts -= 1
                try:
                    self._count_attempt(consumer, producer, queue[0])
                except HeadraceError:  # then one attempt too many stays counted
                    producer.abort()
                    return

    def _count_attempt(self, consumer: Consumer, producer: Producer, work: Work) -> None:
        producer.begin()
        producer.send_offsets(consumer.membership(), {work.record.tp: self._position(work)})
        producer.commit()

    def _check(self, split: Split) -> None:
        """Size and time of the file as planned: asked after each part too, so that no half-written line is taken for a row."""
        now = self._folder.stat(split.file)
        if now is None:
            raise FileNotFoundError(f"{split.file} is gone")
        if (now.size, now.mtime_us) != (split.size, split.mtime_us):
            detail = f"expected the file as it was planned ({split.size} bytes), got {now.size} bytes, changed since"
            raise FileRejected("file-changed", detail)

    def _rejected(self, work: Work, error: FileRejected) -> Outcome:
        """A letter for the rest of the split: from which row on rows are lost, or −1 for the whole file."""
        at = (work.resume or {}).get("row", work.split.first_row)
        row = error.row if error.row >= 0 else int(at)
        whole = row == 0 and work.split.next is None and not work.split.begin
        letter = DeadLetter(
            STAGE, error.reason, error.detail, work.split.file, -1, -1 if whole else row, -1,
            error.raw[: self._config.dead_letter_bytes],
        )  # fmt: skip
        nothing = pa.RecordBatch.from_pylist([], self._schema)
        return Outcome(nothing, nothing, [letter], work.maxseen)

    def _judge(self, work: Work, part: Part) -> Outcome:
        """Verdict of each row (R3)."""
        batch, letters, file = part.batch, list(part.letters), work.split.file
        usable = np.ones(batch.num_rows, np.bool_)

        def reject(mask: Bools, reason: str, detail: str) -> None:
            letters.extend(letter(file, reason, detail, row, part.origin) for row in part.rows_N[mask].tolist())

        for name in self._feed.key:
            valid = batch.column(name).is_valid().to_numpy(zero_copy_only=False)
            reject(usable & ~valid, "null-key", f"column {name}: expected a key, got null")
            usable &= valid
        event_time = self._feed.event_time
        if event_time is None:
            times, late, maxseen = np.zeros(batch.num_rows, np.int64), np.zeros(batch.num_rows, np.bool_), work.maxseen
        else:
            column, split = event_time.column, work.split
            times, timed = times_us(batch.column(column), event_time)
            reject(usable & ~timed, "bad-time", f"column {column}: expected a time, got null, NaN or no possible time")
            limit = limit_of(split.plan_time_us, self._feed.max_future)
            bounds = Bounds(split.L, self._feed.disorder if split.judged_by_rows else None, limit)
            judged = judge(times, usable & timed, bounds, work.maxseen)
            until = f"column {column}: expected a time before {format_time(limit)} (planned, and max_future)"
            reject(judged.future_N, "future-time", until)
            usable, late, maxseen = judged.used_N, judged.late_N, judged.maxseen
        whole = pa.RecordBatch.from_arrays(
            [*batch.columns, pa.array(times), pa.array(part.rows_N)], schema=self._schema
        )
        used = whole if usable.all() else whole.filter(pa.array(usable))
        late_rows = whole.filter(pa.array(late)) if late.any() else whole.slice(0, 0)
        return Outcome(used, late_rows, letters, maxseen, part.size)

    # -- writing

    def _commit(
        self, consumer: Consumer, producer: Producer, work: Work, outcome: Outcome | None, *, done: bool
    ) -> None:
        """One transaction (R4): rows, dead letters, late rows, progress, and the offset with the group's fence."""
        feed, split = self._feed.feed, work.split
        producer.begin()
        counts = self._sender.send(producer, split, outcome) if outcome else Counter()
        reasons = dict(Counter(letter.reason for letter in outcome.letters)) if outcome else {}
        progress = Progress(
            split.id, split.file, work.maxseen, done, counts["rows"], counts["used"], counts["rejected"], counts["late"], reasons
        )  # fmt: skip
        producer.send(names.progress(feed), 0, progress.encode())
        reached("ingest.R3")
        producer.send_offsets(consumer.membership(), {work.record.tp: self._position(work, done=done)})
        producer.commit()
        reached("ingest.R4")
        self._trouble = ""
        self._counts.update(counts)
        self._counts["bytes"] += outcome.size if outcome else 0
        if done:
            self._counts["splits"] += 1
            self._counts["files"] += split.next is None
            self._queues[work.record.tp].pop(0)

    def _position(self, work: Work, *, done: bool = False) -> Position:
        if done:
            return Position(work.record.offset + 1)
        body = {"split": work.split.id, "maxseen": work.maxseen, "attempts": work.attempts, "resume": work.resume}
        return Position(work.record.offset, encode_resume(body))


def _bounded(part: Part, max_bytes: int, began: dict[str, Any] | None) -> Iterator[Part]:
    """A part divided so that no piece is above ``max_bytes`` (a single row may be).

    Letters go with the last piece, and until then reading resumes at the part's beginning (``began``) and skips the rows that
    are committed: so neither is committed twice.
    """
    rows, skip = part.batch.num_rows, int((began or {}).get("skip", 0))
    after = part.resume | ({"skip": skip} if skip > part.next_row else {})  # it may lie behind this part
    pieces = max(1, min(rows, -(-part.batch.nbytes // max_bytes)))
    edges = np.linspace(0, rows, pieces + 1).astype(np.int64).tolist()
    for number, (begin, end) in enumerate(itertools.pairwise(edges), 1):
        last = number == pieces
        resume = after if last else (began or {}) | {"skip": int(part.rows_N[end - 1]) + 1}
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
