"""Reads ahead of the trainer: one thread, a queue a partition, a budget of bytes over all of them.

Each partition has its own share of the budget, so one that is full never keeps another from being read.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Mapping

from cache.chunks import Chunk, decode_chunk, encode_chunk
from cache.contracts import Cache, Key
from streams.contracts import Consumer, Log, Record, TopicInfo, TopicPartition

CHUNK_BYTES = 1024 * 1024 - 16 * 1024
LOOK_S = 0.1
CLOSE_S = 10.0

_logger = logging.getLogger(__name__)


class _Lane:
    """One partition: what was read and not taken."""

    def __init__(self, offset: int) -> None:
        self.records: deque[Record] = deque()
        self.bytes = 0
        self.read_to = offset
        self.taken_to = offset


class _NothingThere(Exception):
    """No record yet from this offset on; carries how far the partition was found empty."""


class Prefetcher:
    """Gives the records of each partition in order (the trainer's ``Reader``).

    Args:
        topic: whose partitions are read. cache: tiers in front of the log; what they hold never changes what comes out.
        max_bytes: of records read and not taken, over all partitions. poll_bytes: read from the log at once.

    One thread takes; the thread of this object reads. Not for use across a fork.
    """

    def __init__(self, log: Log, topic: TopicInfo, cache: Cache, *, max_bytes: int, poll_bytes: int) -> None:
        self._log, self._topic, self._cache = log, topic, cache
        self._max_bytes, self._chunk_bytes = max_bytes, min(poll_bytes, CHUNK_BYTES)
        self._lanes: dict[int, _Lane] = {}
        self._consumers: dict[int, Consumer] = {}
        self._changed = threading.Condition()
        self._closed = self._arrived = False
        self._error: BaseException | None = None
        self._thread: threading.Thread | None = None

    def start(self, offsets: Mapping[int, int]) -> None:
        """Begin at these offsets by partition; once."""
        assert self._thread is None, "started twice"
        for partition, offset in offsets.items():
            self._lanes[partition] = _Lane(offset)
            consumer = self._consumers[partition] = self._log.consumer()
            consumer.assign([self._tp(partition)])
            consumer.seek(self._tp(partition), offset)
        self._thread = threading.Thread(target=self._run, name=f"prefetch-{self._topic.spec.name}", daemon=True)
        self._thread.start()

    def take(self, partition: int, timeout_s: float) -> Record | None:
        """The next record, or ``None`` if none came in time. Raises what the reading thread met."""
        lane = self._lanes[partition]
        with self._changed:
            if not lane.records and self._error is None and timeout_s > 0:
                self._changed.wait_for(lambda: lane.records or self._error is not None or self._closed, timeout_s)
            if not lane.records:
                if self._error is not None:
                    raise self._error
                return None
            record = lane.records.popleft()
            size = _size(record)
            was_full = lane.bytes >= self._share()
            lane.bytes -= size
            lane.taken_to = record.offset + 1 if lane.records else lane.read_to
            if was_full and lane.bytes < self._share():
                self._changed.notify_all()
            return record

    def wait(self, timeout_s: float) -> None:
        """Block until records came since the last ``wait`` ended, or an error, or the time is over."""
        with self._changed:
            self._changed.wait_for(lambda: self._arrived or self._error is not None or self._closed, timeout_s)
            self._arrived = False

    def position(self, partition: int) -> int:
        """The offset after the last record taken, moved past gaps when nothing lies behind them."""
        with self._changed:
            return self._lanes[partition].taken_to

    def at_end(self, partition: int) -> bool:
        """Whether all that the log holds now of a partition was taken."""
        tp = self._tp(partition)
        end = self._log.end_offsets([tp])[tp]
        with self._changed:
            lane = self._lanes[partition]
            return not lane.records and lane.read_to >= end

    def close(self) -> None:
        """Stop the thread and release. May be called twice."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        if self._thread is not None:
            self._thread.join(CLOSE_S)
            if self._thread.is_alive():  # it ends with its call to the log; until then its consumers are in use
                _logger.warning("reading ahead of %s has not ended after %g s", self._topic.spec.name, CLOSE_S)
                return
        for consumer in self._consumers.values():
            consumer.close()
        self._consumers.clear()

    # -- the thread

    def _run(self) -> None:
        try:
            while not self._closed:
                moved = [self._read_ahead(partition) for partition in self._lanes]
                if any(moved) or self._closed:
                    continue
                if self._all_full():
                    with self._changed:
                        self._changed.wait_for(lambda: self._closed or not self._all_full(), LOOK_S)
                else:
                    self._log.wait(LOOK_S)
        except BaseException as error:  # handed to whoever takes
            with self._changed:
                self._error = error
                self._changed.notify_all()

    def _read_ahead(self, partition: int) -> bool:
        """One chunk of a partition that has room; whether anything came."""
        lane = self._lanes[partition]
        if lane.bytes >= self._share():
            return False
        chunk = self._chunk(partition, lane.read_to)
        if chunk is None or (not chunk.records and chunk.next_offset == lane.read_to):
            return False
        with self._changed:
            lane.records.extend(chunk.records)
            lane.bytes += sum(_size(record) for record in chunk.records)
            lane.read_to = chunk.next_offset
            if not lane.records:
                lane.taken_to = lane.read_to
            if chunk.records:
                self._arrived = True
                self._changed.notify_all()
        return bool(chunk.records)

    def _chunk(self, partition: int, offset: int) -> Chunk | None:
        tp = self._tp(partition)
        key = Key(self._topic.id, partition, offset)
        try:
            value = self._cache.get_or_load(key, lambda: self._load(key))
        except _NothingThere as nothing:
            return Chunk((), nothing.args[0])
        chunk = decode_chunk(key, value, tp)
        if chunk is None:  # damaged in a tier
            try:
                value = self._load(key)
            except _NothingThere as nothing:
                return Chunk((), nothing.args[0])
            self._cache.replace(key, value)
            chunk = decode_chunk(key, value, tp)
        return chunk

    def _load(self, key: Key) -> bytes:
        tp, consumer, offset = self._tp(key.partition), self._consumers[key.partition], key.offset
        if consumer.position(tp) != offset:
            consumer.seek(tp, offset)
        records = consumer.poll(self._chunk_bytes, 0.0)
        if not records:
            raise _NothingThere(max(offset, consumer.position(tp)))
        return encode_chunk(key, records, consumer.position(tp))

    def _share(self) -> int:
        return max(1, self._max_bytes // max(1, len(self._lanes)))

    def _all_full(self) -> bool:
        return all(lane.bytes >= self._share() for lane in self._lanes.values())

    def _tp(self, partition: int) -> TopicPartition:
        return TopicPartition(self._topic.spec.name, partition)


def _size(record: Record) -> int:
    return 200 + (len(record.value) if record.value is not None else 0)
