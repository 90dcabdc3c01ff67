"""``joined.<view>`` → ``exp.<name>.v<n>``: the worker that reads, cuts, featurizes and commits.

Everything that a batch is follows from ``joined`` and the committed position; the worker keeps nothing else. After any
failure it forgets what it holds and begins at the committed positions again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import pyarrow as pa

from experiments import names
from experiments.view import Version
from preprocess.contracts import (
    FILE_COLUMN,
    FRONTIER,
    JOINED,
    ROW_COLUMN,
    TIME_COLUMN,
    Config,
    encode_batch,
    joined_schema,
)
from preprocess.featurize.batch import Featurizer
from preprocess.featurize.cutting import Rule
from preprocess.featurize.graph import compile_plan
from preprocess.featurize.pending import Block, Pending
from streams.contracts import Clock, Consumer, Log, Position, Producer, Record, TopicPartition
from streams.dead_letters import DeadLetter, letter_for, pack_letters
from streams.errors import Broken, Exhausted, SchemaMismatch, Usage
from streams.exactly_once import ExactlyOnce
from streams.killpoints import reached
from streams.packed import Limits, control, declared_rows, place, read_control, unpack

STAGE = "featurize"


class FeaturizeWorker:
    """A ``Worker``: one member of the group ``feat.<name>.v<n>``. Any number may run; one thread each.

    Waits (``step`` gives ``False``) until its topics exist.
    """

    def __init__(self, log: Log, version: Version, config: Config, *, clock: Clock) -> None:
        self._log = log
        self._version = version
        self._config = config
        self._clock = clock
        self._plan = compile_plan(version.experiment, version.view)
        self._schema = joined_schema(version.view)
        self._needed = list(self._plan.needed)
        self._featurizer = Featurizer(self._plan)
        self._rule = _rule(version)
        self._joined = names.joined(version.view.name)
        self._exp = names.exp(version.name, version.number)
        self._dead = names.dead_letters(version.name)
        group = names.featurize_group(version.name, version.number)
        self._loop = ExactlyOnce(log, group, [self._joined], self, clock=clock)
        self._states: dict[TopicPartition, Pending] = {}
        self._letters: list[DeadLetter] = []
        self._committed: dict[TopicPartition, int] = {}
        self._commit_due_s = 0.0

    def step(self) -> bool:
        """Read some, write at most one transaction.

        Raises:
            Broken: joined is not what it must be. Exhausted: a batch is above the cap of its topic.
        """
        if not self._loop.begun and not all(self._log.topic(t) for t in (self._joined, self._exp, self._dead)):
            return False
        return self._loop.turn(self._turn)

    def _turn(self, consumer: Consumer, producer: Producer) -> bool:
        if self._ready():
            self._loop.attend()
            worked = True
        else:
            worked = self._read(consumer)
        return self._write(consumer, producer) or worked

    def place(self, consumer: Consumer, committed: Mapping[TopicPartition, Position | None]) -> None:
        """Partitions that begin at their committed positions."""
        for tp, position in committed.items():
            version = self._version
            state = Pending(
                f"{tp.topic}/{tp.partition}", self._rule, position, version.start[tp.partition], version.start_time_us
            )
            consumer.seek(tp, state.start)
            self._states[tp] = state

    def drop(self, partitions: Iterable[TopicPartition]) -> None:
        """Partitions that another worker has now."""
        for tp in partitions:
            self._states.pop(tp, None)
            self._committed.pop(tp, None)

    def forget(self) -> None:
        """Hold nothing."""
        self._states.clear()
        self._committed.clear()
        self._letters.clear()

    def report(self) -> dict[str, object]:
        """By partition that this worker has: position, rows out, rows held back, rejected, skipped, V."""
        return {
            "stage": STAGE,
            "version": self._version.label,
            "waiting": "" if self._loop.begun else "for its topics",
            "replaced": self._featurizer.replaced,
            "partitions": {
                str(tp.partition): {
                    "pos": state.read_to,
                    "rows": state.counts.rows,
                    "held": state.rows,
                    "rejected": state.counts.rejected,
                    "skipped": state.counts.skipped,
                    "V": state.forwarded_us,
                }
                for tp, state in sorted(self._states.items())
            },
        }

    def close(self) -> None:
        """Leave the group."""
        self._loop.close()
        self._states.clear()

    # -- reading

    def _ready(self) -> bool:
        return any(state.has_batch() for state in self._states.values())

    def _read(self, consumer: Consumer) -> bool:
        used, fresh = self._loop.read(self._config.poll_bytes)
        for record in used:
            self._take_in(record, self._states[record.tp])
        for tp, state in self._states.items():
            state.reached(consumer.position(tp))
        if used:
            reached("feat.F1")  # Step 1
        return bool(used) or fresh

    def _take_in(self, record: Record, state: Pending) -> None:
        try:
            named = read_control(record)
            rows = None if named else self._decode(record)
        except (Broken, Exhausted, SchemaMismatch) as error:
            if state.is_new(record.offset):
                self._letters.append(letter_for(record, stage=STAGE, reason="bad-joined-message", detail=str(error)))
                state.counts.rejected += declared_rows(record)
            return
        if rows is not None:
            state.add(record.offset, rows)
        elif named and named[0] == FRONTIER:
            state.bound(named[1])

    def _decode(self, record: Record) -> pa.RecordBatch:
        rows = unpack(record, kind=JOINED, schema=self._schema, limits=Limits())
        for name in (TIME_COLUMN, FILE_COLUMN, ROW_COLUMN, self._plan.label):
            if rows.column(name).null_count:
                raise Broken(
                    expected=f"no null in {name}",
                    got=f"{rows.column(name).null_count} nulls",
                    where=place(record),
                    do="The message goes to the dead letters; see `headrace status` for the count.",
                )
        return rows.select(self._needed)

    # -- writing

    def _write(self, consumer: Consumer, producer: Producer) -> bool:
        """One transaction, if there is anything to say.

        1 rows read and held (``_read``). 2 begin. 3 batches and dead letters sent. 4 V and the positions added. 5 committed.
        If it dies before 5, nothing is visible and the next owner reads from the committed position; after it, everything is.
        """
        due = self._clock.monotonic_s() >= self._commit_due_s
        moved = {tp for tp, state in self._states.items() if state.read_to != self._committed.get(tp)}
        rising = any(state.would_raise() is not None for state in self._states.values())
        if not (self._ready() or self._letters or rising or (due and moved)):
            return False
        reached("feat.F2")  # Step 2
        producer.begin()
        touched = self._send_batches(producer)
        if self._letters:
            letters = pack_letters(self._letters)
            producer.send(self._dead, 0, letters.value, headers=letters.headers)
        reached("feat.F3")  # Step 3
        for tp, state in self._states.items():
            if (bound := state.raise_bound()) is not None:
                record = control(FRONTIER, bound)
                producer.send(self._exp, tp.partition, record.value, headers=record.headers)
                touched.add(tp)
        positions = self._positions(touched | moved)
        producer.send_offsets(consumer.membership(), positions)
        reached("feat.F4")  # Step 4
        producer.commit()
        reached("feat.F5")  # Step 5
        self._letters.clear()
        for tp in positions:
            self._committed[tp] = self._states[tp].read_to or 0
        self._commit_due_s = self._clock.monotonic_s() + self._config.idle_commit_s
        return True

    def _send_batches(self, producer: Producer) -> set[TopicPartition]:
        """Batches up to the caps of a transaction, fairly over the partitions."""
        touched: set[TopicPartition] = set()
        messages, size = self._config.transaction_messages, self._config.transaction_bytes
        waiting = list(self._states.items())
        while waiting and messages > 0 and size > 0:
            tp, state = waiting.pop(0)
            block = state.take(messages)
            if block is None:
                continue
            waiting.append((tp, state))
            touched.add(tp)
            size -= self._send_block(producer, tp, state, block)
            messages -= len(block.cuts)
        return touched

    def _send_block(self, producer: Producer, tp: TopicPartition, state: Pending, block: Block) -> int:
        """Bytes sent."""
        lineage = {"topic": tp.topic, "partition": tp.partition, "offset": block.offset, "skip": block.skip}
        replaced, size = self._featurizer.replaced, 0
        for batch in self._featurizer.batches(block.rows, block.cuts):
            packed = encode_batch(batch, self._plan.layout, lineage=lineage, compression=self._config.batch_compression)
            producer.send(self._exp, tp.partition, packed.value, headers=packed.headers)
            size += len(packed.value)
        state.counts.replaced += self._featurizer.replaced - replaced
        return size

    def _positions(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, Position]:
        return {tp: self._states[tp].position(self._states[tp].has_batch()) for tp in sorted(partitions)}


def _rule(version: Version) -> Rule:
    """Raises ``Usage`` when a step cannot be divided evenly over the partitions (publishing checks before)."""
    batch_rows, partitions = version.experiment.train.batch_rows, version.view.partitions
    if batch_rows % partitions:
        raise Usage(
            expected=f"a multiple of the {partitions} partitions of {version.view.sample.feed}",
            got=f"batch_rows: {batch_rows}",
            where=f"experiment {version.name}, train.batch_rows",
            do=f"Write for example {max(batch_rows // partitions, 1) * partitions}.",
        )
    return Rule(batch_rows // partitions, version.view.sample.cuts.every)
