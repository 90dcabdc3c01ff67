"""``raw.<sample>`` and side tables → ``joined.<view>``: the worker that reads, joins and commits.

Everything it puts out follows from raw and the committed position. After any failure it forgets what it holds and begins at
the committed positions again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from experiments import names
from experiments.view import View
from ingest.contracts import ROW_COLUMN as RAW_ROW
from ingest.contracts import ROWS, TIME_COLUMN, WATERMARK, raw_schema
from preprocess.contracts import FRONTIER, JOINED, Config
from preprocess.join.lookups import DUPLICATE, SideTables
from preprocess.join.order import Chunk, chunk_of
from preprocess.join.partition import Caps, Emission, PartitionState
from preprocess.join.rejected import STAGE
from streams.contracts import Clock, Consumer, Log, Position, Producer, Record, TopicPartition
from streams.dead_letters import DeadLetter, letter_for, pack_letter_columns, pack_letters
from streams.errors import Broken, Exhausted, SchemaMismatch
from streams.exactly_once import ExactlyOnce
from streams.killpoints import reached
from streams.packed import (
    CONTROL,
    Limits,
    control,
    declared_rows,
    kind_of,
    lineage_of,
    pack,
    place,
    read_control,
    unpack,
)

LETTERS = 10_000
"""Dead letters, and side rows, of one transaction."""


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
        self._tables = SideTables(log, view.lookups, config.side_table_bytes)
        topics = [names.raw(feed) for feed in view.inputs]
        self._loop = ExactlyOnce(log, names.join_group(view.name), topics, self, clock=clock)
        self._states: dict[TopicPartition, PartitionState] = {}
        self._letters: list[DeadLetter] = []
        self._committed: dict[TopicPartition, int] = {}
        self._commit_due_s = 0.0

    def step(self) -> bool:
        """Read some, write at most one transaction.

        Raises ``Exhausted``: side tables above the cap, or a message above the cap of its topic.
        """
        if not self._loop.begun and self._missing_topics():
            return False
        if not self._tables.complete:
            return self._tables.read(self._config.poll_bytes)
        return self._loop.turn(self._turn)

    def _turn(self, consumer: Consumer, producer: Producer) -> bool:
        if any(state.more for state in self._states.values()):
            self._loop.attend()
            self._write(consumer, producer, idle=False)
            return True
        worked = self._read(consumer)
        return self._write(consumer, producer, idle=not worked) or worked

    def place(self, consumer: Consumer, committed: Mapping[TopicPartition, Position | None]) -> None:
        """Partitions that begin at their committed positions."""
        assert self._tables.indexes is not None
        for tp, position in committed.items():
            self._states[tp] = PartitionState(self._view, self._tables.indexes, position)
            consumer.seek(tp, self._states[tp].needed)

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
        """By partition that this worker has: position, W, V, rows out, held and rejected; and what it waits for."""
        return {
            "stage": STAGE,
            "view": self._view.name,
            "waiting": self._waiting(),
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

    def _waiting(self) -> str:
        if not self._loop.begun and (topics := self._missing_topics()):
            return f"for topics: {', '.join(topics)}"
        tables = ", ".join(self._tables.waiting_for)
        return f"for the side tables to be complete: {tables}" if tables else ""

    def close(self) -> None:
        """Leave the group."""
        self._tables.close()
        self._loop.close()
        self._states.clear()

    def _missing_topics(self) -> list[str]:
        tables = [names.raw(lookup.feed.feed) for lookup in self._view.lookups]
        needed = (self._raw, *tables, self._joined, self._dead, self._side)
        return [name for name in needed if self._log.topic(name) is None]

    # -- reading

    def _read(self, consumer: Consumer) -> bool:
        used, fresh = self._loop.read(self._config.poll_bytes)
        for record in used:
            self._take_in(record, self._states[record.tp])
        for tp, state in self._states.items():
            state.reached(consumer.position(tp))
        if used:
            reached("join.J3")  # Step J3
        return bool(used) or fresh

    def _take_in(self, record: Record, state: PartitionState) -> None:
        try:
            named = read_control(record)
            if named is not None:
                if named[0] == WATERMARK:
                    state.raise_watermark(named[1])
                return
            chunk = self._chunk(record)
        except (Broken, Exhausted, SchemaMismatch) as error:
            if record.offset >= state.saved_pos:
                self._letters.append(letter_for(record, stage=STAGE, reason="bad-raw-message", detail=str(error)))
                state.rows_rejected += declared_rows(record) if kind_of(record) != CONTROL else 0
            return
        state.add(chunk)

    def _chunk(self, record: Record) -> Chunk:
        """Rows of a message. Raises ``Broken``, ``Exhausted`` or ``SchemaMismatch`` if it is not what ingest writes."""
        batch = unpack(record, kind=ROWS, schema=self._raw_schema, limits=Limits())
        file, times, rows = lineage_of(record).get("file"), batch.column(TIME_COLUMN), batch.column(RAW_ROW)
        if not isinstance(file, str) or times.null_count or rows.null_count:
            raise Broken(
                expected="rows with their file, time and row number",
                got=f"file {file!r}, {times.null_count} null times, {rows.null_count} null row numbers",
                where=place(record),
                do="The message goes to the dead letters; see `headrace status` for the count.",
            )
        columns = batch.select(list(self._view.sample.columns))
        return chunk_of(columns, times.to_numpy(), rows.to_numpy(), file, record.offset)

    # -- writing

    def _write(self, consumer: Consumer, producer: Producer, *, idle: bool) -> bool:
        """One transaction, if there is anything to say; see the README of ``preprocess`` for its steps."""
        ready = {tp: state for tp, state in self._states.items() if state.ready}
        emissions = self._emissions(ready)
        moved = {tp for tp, state in ready.items() if state.pos != self._committed.get(tp, state.needed)}
        side = self._side_part(emissions)
        said = any(emission.says_something for emission in emissions.values())
        due = idle or self._clock.monotonic_s() >= self._commit_due_s
        if not (said or side or self._letters or (due and moved)):
            for tp, emission in emissions.items():
                ready[tp].nothing_to_say(emission)
            return False
        producer.begin()
        for tp, emission in emissions.items():
            self._send(producer, tp, emission)
        doubles = [letter for letter in side if letter.reason == DUPLICATE]
        self._send_letters(producer, self._dead, self._letters + [x for x in side if x.reason != DUPLICATE])
        self._send_letters(producer, self._side, doubles)
        reached("join.J5")  # Step J5
        for tp, emission in emissions.items():
            if emission.V is not None:
                record = control(FRONTIER, emission.V)
                producer.send(self._joined, tp.partition, record.value, headers=record.headers)
        for tp, state in ready.items():
            state.side += len(side) if tp.partition == 0 else 0
        positions = {tp: ready[tp].position_after(emission) for tp, emission in emissions.items()}
        producer.send_offsets(consumer.membership(), positions)
        reached("join.J7")  # Step J7
        producer.commit()
        reached("join.J8")  # Step J8
        for tp, emission in emissions.items():
            ready[tp].done(emission)
            self._committed[tp] = ready[tp].pos
        self._letters.clear()
        self._commit_due_s = self._clock.monotonic_s() + self._config.idle_commit_s
        return True

    def _emissions(self, ready: dict[TopicPartition, PartitionState]) -> dict[TopicPartition, Emission]:
        """Shares of one transaction, fairly over the partitions."""
        share = max(1, len(ready))
        config = self._config
        messages, size = config.transaction_messages // share, config.transaction_bytes // share
        caps = Caps(max(1, messages), max(1, size), max(1, LETTERS // share))
        out = {}
        for tp, state in ready.items():
            state.settle(config.settle_rows)
            out[tp] = state.emit(caps)
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
        if len(emission.letters):
            packed = pack_letter_columns(emission.letters.letters)
            producer.send(self._dead, 0, packed.value, headers=packed.headers)

    def _side_part(self, emissions: dict[TopicPartition, Emission]) -> list[DeadLetter]:
        """What is still to be said about the side tables: once for the view, by the owner of partition 0."""
        first = TopicPartition(self._raw, 0)
        if first not in emissions:
            return []
        said = self._states[first].side
        part = self._tables.letters_from(said, LETTERS)
        if said + len(part) < self._tables.num_letters:
            emissions[first] = replace(emissions[first], more=True)
        return part

    def _send_letters(self, producer: Producer, topic: str, letters: list[DeadLetter]) -> None:
        if letters:
            packed = pack_letters(letters)
            producer.send(topic, 0, packed.value, headers=packed.headers)
