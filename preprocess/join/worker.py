"""``raw.<sample>`` and side tables → ``joined.<view>``: the worker that reads, joins and commits.

Everything it puts out follows from raw and the committed position. After any failure it forgets what it holds and begins at
the committed positions again.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable

from experiments import names
from experiments.view import View
from ingest.contracts import ROW_COLUMN as RAW_ROW
from ingest.contracts import ROWS, TIME_COLUMN, WATERMARK, raw_schema
from preprocess.contracts import FRONTIER, JOINED, Config
from preprocess.join.lookups import STAGE, SideTables
from preprocess.join.order import Chunk
from preprocess.join.partition import Emission, PartitionState
from streams.contracts import Clock, Consumer, Log, Producer, Record, TopicPartition
from streams.dead_letters import DeadLetter, letter_for, pack_letters
from streams.errors import Broken, Busy, Exhausted, Rebalanced, SchemaMismatch, UnknownOutcome
from streams.killpoints import reached
from streams.packed import Limits, control, declared_rows, lineage_of, pack, read_control, unpack

SIDE_LETTERS = 10_000


class JoinWorker:
    """A ``Worker``: one member of the group ``join.<view>``. Any number may run; one thread each.

    Decides nothing before every side table is complete; waits until its topics exist.
    """

    def __init__(self, log: Log, view: View, config: Config, *, clock: Clock) -> None:
        self._log, self._view, self._config, self._clock = log, view, config, clock
        self._raw = names.raw(view.sample.feed)
        self._raw_schema = raw_schema(view.sample)
        self._joined, self._dead, self._side = (
            names.joined(view.name),
            names.dead_letters(view.name),
            names.side(view.name),
        )
        self._group = names.join_group(view.name)
        self._transactional_id = f"{self._group}.{secrets.token_hex(8)}"
        self._tables = SideTables(log, view.lookups, config.side_table_bytes)
        self._side_letters: list[DeadLetter] = []
        self._consumer: Consumer | None = None
        self._producer: Producer | None = None
        self._states: dict[TopicPartition, PartitionState] = {}
        self._unplaced: set[TopicPartition] = set()
        self._letters: list[DeadLetter] = []
        self._committed: dict[TopicPartition, int] = {}
        self._commit_due_s = 0.0
        self._in_doubt = False

    def step(self) -> bool:
        """Read some, write at most one transaction.

        Raises:
            Fenced: stop. Exhausted: side tables above the cap, or a message above the cap of its topic.
        """
        if not self._topics_exist():
            return False
        if not self._tables.complete:
            moved = self._tables.read(self._config.poll_bytes)
            if self._tables.complete:
                self._side_letters = self._duplicates()
                self._tables.letters.clear()
            return moved
        consumer, producer = self._open()
        try:
            if self._in_doubt:
                self._forget(consumer, producer)
            self._in_doubt = True
            more = any(state.more for state in self._states.values())
            worked = more or self._read(consumer)
            worked = self._write(consumer, producer, idle=not worked) or worked
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
            self._states.pop(tp, None)
            self._committed.pop(tp, None)
            self._unplaced.discard(tp)

    def on_assigned(self, partitions: Iterable[TopicPartition]) -> None:
        """Called by the consumer."""
        self._unplaced.update(partitions)

    def report(self) -> dict[str, object]:
        """By partition that this worker has: position, W, V, rows out, held and rejected; and what it waits for."""
        waiting = ", ".join(self._tables.waiting_for)
        return {
            "stage": STAGE,
            "view": self._view.name,
            "waiting": f"for the side tables to be complete: {waiting}" if waiting else "",
            "partitions": {
                str(tp.partition): {
                    "pos": state.pos,
                    "W": state.W,
                    "V": state.V,
                    "rows": state.rows_out,
                    "held": state.rows_held,
                    "rejected": state.rows_rejected,
                }
                for tp, state in sorted(self._states.items())
            },
        }

    def close(self) -> None:
        """Leave the group."""
        self._tables.close()
        if self._consumer:
            self._consumer.close()
        if self._producer:
            self._producer.close()
        self._consumer = self._producer = None
        self._states.clear()

    def _topics_exist(self) -> bool:
        if self._consumer is not None:
            return True
        tables = [names.raw(lookup.feed.feed) for lookup in self._view.lookups]
        return all(self._log.topic(name) for name in (self._raw, self._joined, self._dead, self._side, *tables))

    def _open(self) -> tuple[Consumer, Producer]:
        if self._producer is None:
            self._producer = self._log.producer(self._transactional_id)
        if self._consumer is None:
            self._consumer = self._log.consumer(self._group)
            self._consumer.subscribe([names.raw(feed) for feed in self._view.inputs], self)
        return self._consumer, self._producer

    def _forget(self, consumer: Consumer, producer: Producer) -> None:
        """Begin again at what is committed."""
        producer.abort()
        self._states.clear()
        self._committed.clear()
        self._letters.clear()
        self._unplaced = set(consumer.assignment())

    def _place(self, consumer: Consumer) -> None:
        assert self._tables.indexes is not None
        for tp, committed in consumer.committed(sorted(self._unplaced)).items():
            state = PartitionState(self._view, self._tables.indexes, committed)
            consumer.seek(tp, state.needed)
            self._states[tp] = state
        self._unplaced.clear()

    def _duplicates(self) -> list[DeadLetter]:
        """Rows of side tables whose key an earlier row has, and messages of theirs that could not be read."""
        assert self._tables.indexes is not None
        letters = list(self._tables.letters)
        for index in self._tables.indexes:
            feed = index.table.feed
            detail = f"an earlier row of {feed.feed} has the same {feed.key[0]}; that one is used"
            letters += [
                DeadLetter(STAGE, "duplicate-key", detail, f"{feed.feed}/{file}", -1, row, -1, b"")
                for file, row in index.duplicates
            ]
        return letters

    # -- reading

    def _read(self, consumer: Consumer) -> bool:
        records = consumer.poll(self._config.poll_bytes, 0.0)
        fresh = frozenset(self._unplaced)
        if fresh:
            self._place(consumer)
        used = [record for record in records if record.tp in self._states and record.tp not in fresh]
        for record in used:
            self._take_in(record, self._states[record.tp])
        for tp, state in self._states.items():
            state.reached(consumer.position(tp))
        if used:
            reached("join.J3")
        return bool(used) or bool(fresh)

    def _take_in(self, record: Record, state: PartitionState) -> None:
        try:
            named = read_control(record)
            if named is not None:
                if named[0] == WATERMARK:
                    state.raise_watermark(named[1])
                return
            batch = unpack(record, kind=ROWS, schema=self._raw_schema, limits=Limits())
            file = str(lineage_of(record)["file"])
        except (Broken, Exhausted, SchemaMismatch, KeyError) as error:
            if record.offset >= state.saved_pos:
                self._letters.append(letter_for(record, stage=STAGE, reason="bad-raw-message", detail=str(error)))
                state.rows_rejected += declared_rows(record)
            return
        times, rows = batch.column(TIME_COLUMN).to_numpy(), batch.column(RAW_ROW).to_numpy()
        columns = batch.select(list(self._view.sample.columns))
        state.add(Chunk(columns, times, rows, file, record.offset))

    # -- writing

    def _write(self, consumer: Consumer, producer: Producer, *, idle: bool) -> bool:
        """One transaction, if there is anything to say; see the README of ``preprocess`` for its steps."""
        ready = {tp: state for tp, state in self._states.items() if state.ready}
        emissions = self._emissions(ready)
        moved = {tp for tp, state in ready.items() if state.pos != self._committed.get(tp, state.needed)}
        side = self._side_part(ready)
        said = any(e.messages or e.letters or e.V is not None for e in emissions.values())
        due = idle or self._clock.monotonic_s() >= self._commit_due_s
        if not (said or side or self._letters or (due and moved)):
            return False
        producer.begin()
        for tp, emission in emissions.items():
            self._send(producer, tp, emission)
        self._send_letters(producer, self._dead, self._letters)
        self._send_letters(producer, self._side, side)
        reached("join.J5")
        for tp, emission in emissions.items():
            if emission.V is not None:
                record = control(FRONTIER, emission.V)
                producer.send(self._joined, tp.partition, record.value, headers=record.headers)
        for tp, state in ready.items():
            state.side += len(side) if tp.partition == 0 else 0
        positions = {tp: ready[tp].position_after(emission) for tp, emission in emissions.items()}
        producer.send_offsets(consumer.membership(), positions)
        reached("join.J7")
        producer.commit()
        reached("join.J8")
        for tp, emission in emissions.items():
            ready[tp].done(emission)
            self._committed[tp] = ready[tp].pos
        self._letters.clear()
        self._commit_due_s = self._clock.monotonic_s() + self._config.idle_commit_s
        return True

    def _emissions(self, ready: dict[TopicPartition, PartitionState]) -> dict[TopicPartition, Emission]:
        """Shares of one transaction, fairly over the partitions."""
        share = max(1, len(ready))
        messages = max(1, self._config.transaction_messages // share)
        size = max(1, self._config.transaction_bytes // share)
        out = {}
        for tp, state in ready.items():
            if not state.more:
                state.settle()
            out[tp] = state.emit(messages, size)
        return out

    def _send(self, producer: Producer, tp: TopicPartition, emission: Emission) -> None:
        for k, (rows, span) in enumerate(zip(emission.messages, emission.spans, strict=True), emission.first):
            times = rows.column(rows.num_columns - 3)
            packed = pack(
                rows,
                kind=JOINED,
                times=(times[0].as_py(), times[-1].as_py()),
                lineage={"k": k, "raw": list(span)},
                compression=self._config.joined_compression,
            )
            producer.send(self._joined, tp.partition, packed.value, headers=packed.headers)
        self._send_letters(producer, self._dead, emission.letters)

    def _side_part(self, ready: dict[TopicPartition, PartitionState]) -> list[DeadLetter]:
        """What is still to be said about the side tables: once for the view, by the owner of partition 0."""
        first = next((state for tp, state in ready.items() if tp.partition == 0), None)
        return [] if first is None else self._side_letters[first.side : first.side + SIDE_LETTERS]

    def _send_letters(self, producer: Producer, topic: str, letters: list[DeadLetter]) -> None:
        if letters:
            packed = pack_letters(letters)
            producer.send(topic, 0, packed.value, headers=packed.headers)
