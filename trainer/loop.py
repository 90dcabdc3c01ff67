"""The trainer of one version, as a worker: takes the lock, trains what is proven, checkpoints, reports."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from typing import Any

from cache.contracts import Cache
from experiments.names import exp
from experiments.view import Version
from ingest.contracts import T_END
from preprocess.contracts import PhysicalTable, rows_of
from streams.contracts import Clock, Log, TopicInfo, TopicPartition
from streams.errors import Closed
from streams.tail import read_to_end
from trainer.contracts import Config, EmbeddingTable
from trainer.folder import Lock, version_folder
from trainer.reading import DirectReader, Reader
from trainer.session import Session, Setup
from trainer.status import counts, saved, train_report
from trainer.tables.dynamic import DynamicTable

STEPS_PER_CALL = 64
SECONDS_PER_CALL = 0.5

logger = logging.getLogger("headrace.trainer")


class Trainer:
    """A ``Worker``. Nothing happens before the first ``step``: it may be made while another trainer runs.

    Args:
        cache: its counters are reported.
        make_reader: how batches are read; the wiring gives one that works ahead through ``cache``. Default: straight
            from the log.
    """

    def __init__(
        self,
        log: Log,
        version: Version,
        config: Config,
        cache: Cache,
        *,
        clock: Clock,
        make_reader: Callable[[TopicInfo], Reader] | None = None,
    ) -> None:
        self._log = log
        self._version = version
        self._config = config
        self._cache = cache
        self._clock = clock
        self._make_reader = make_reader or partial(DirectReader, log, poll_bytes=config.poll_bytes)
        self._folder = version_folder(config.directory, version.name, version.number)
        self._lock = Lock(self._folder / "trainer.lock")
        self._session: Session | None = None
        self._state = "starting"
        self._warnings: list[str] = []
        self._waiting: tuple[object, int] = (None, 0)
        self._closed = False

    def step(self) -> bool:
        """Train up to ``STEPS_PER_CALL`` steps or half a second. ``False`` if nothing could be trained.

        An error closes the trainer: what is in memory is dropped, the next one starts from the last checkpoint.
        """
        if self._closed:
            raise Closed(
                expected="an open trainer", got="a closed one", where=self._version.label, do="Make a new one."
            )
        try:
            session = self._session or self._open()
            return session is not None and self._train(session)
        except BaseException:
            self.close()
            raise

    def checkpoint(self) -> bool:
        """Write a checkpoint now; ``False`` if nothing happened since the last one."""
        return self._session is not None and self._session.checkpoint()

    @property
    def finished(self) -> bool:
        """The feed has ended, everything of it was trained, and all of it is in a checkpoint."""
        return self._session is not None and self._session.drained and not self._session.dirty

    @property
    def stuck(self) -> bool:
        """Nothing more can be trained with what the log holds now. Before the last ``step``'s look; call ``step`` again to
        look again."""
        return self._session is not None and self._session.stuck

    def wait(self, timeout_s: float) -> None:
        """Block until there may be something to train, or the time is over."""
        if self._session is None:
            self._log.wait(timeout_s)
        else:
            self._session.wait(timeout_s)

    def report(self) -> dict[str, object]:
        """Fields of ``experiments.<name>`` in the result object that training knows; metrics as of the last checkpoint.
        ``state``: ``starting``, ``standby`` (another trainer of this version runs), ``waiting`` (for its topic),
        ``training``, ``idle``, ``finished``, ``closed``."""
        session = self._session
        if session is None:
            report = train_report(self._config.directory, self._version.name, self._version.number)
            return report | {"state": self._state, "waiting": [], "warnings": self._warnings[-10:]}
        found = (session.checkpoint_path, session.manifest)
        last = saved(self._folder, found if found[0] and found[1] else None)  # type: ignore[arg-type]
        return {
            "version": self._version.number,
            "state": "finished" if self.finished else self._state,
            **counts(session.step, session.tally),
            **last,
            "bit_identical": session.bit_identical,
            "waiting": self._rows_waiting(session),
            "V": [position.V for position in session.source.positions],
            "tables": {name: table.rows for name, table in session.learner.tables.items()},
            "table_bytes": session.learner.nbytes(),
            "cache": {name: asdict(counters) for name, counters in self._cache.counters().items()},
            "warnings": self._warnings[-10:],
        }

    def close(self) -> None:
        """Release everything, the lock last. What is not in a checkpoint is dropped. May be called twice."""
        self._closed = True
        self._state = "closed"
        if self._session is not None:
            self._session.close()
            self._session = None
        self._lock.release()

    def _open(self) -> Session | None:
        topic = self._log.topic(exp(self._version.name, self._version.number))
        if topic is None:
            self._state = "waiting"
            return None
        if not self._lock.acquire():
            self._state = "standby"
            return None
        self._state = "training"
        make_table = partial(_make_table, self._version.experiment.train.seed, self._config.max_rows)
        setup = Setup(
            self._log, self._version, topic, self._config, self._clock, make_table, self._make_reader, self._warn
        )
        self._session = Session(setup)
        return self._session

    def _train(self, session: Session) -> bool:
        began_s = self._clock.monotonic_s()
        trained = 0
        while trained < STEPS_PER_CALL and self._clock.monotonic_s() - began_s < SECONDS_PER_CALL:
            if not session.train_one():
                break
            trained += 1
            if session.due:
                session.checkpoint()
        if session.due or (session.drained and session.dirty):
            session.checkpoint()
        session.commit_position()
        self._state = "training" if trained else "idle"
        return trained > 0

    def _rows_waiting(self, session: Session) -> list[dict[str, Any]]:
        """Rows in the log that no step may use yet, counted when nothing more can be trained."""
        if not session.stuck or session.drained:
            return []
        topic = exp(self._version.name, self._version.number)
        positions = session.source.positions
        tps = [TopicPartition(topic, partition) for partition in range(len(positions))]
        key = (tuple(position.next_offset for position in positions), tuple(self._log.end_offsets(tps).values()))
        if key != self._waiting[0]:
            rows = sum(
                rows_of(record)
                for partition, position in enumerate(positions)
                for record in read_to_end(self._log, topic, partition, position.next_offset)
            )
            self._waiting = (key, rows)
        if not self._waiting[1]:
            return []
        missing = session.source.waits_for or [p for p, position in enumerate(positions) if position.V < T_END]
        names = ", ".join(map(str, missing))
        return [
            {
                "stage": "train",
                "rows": self._waiting[1],
                "for": f"more rows of partition{'s' if len(missing) > 1 else ''} {names},"
                f" or the end of the feed {self._version.view.sample.feed}",
            }
        ]

    def _warn(self, line: str) -> None:
        self._warnings.append(line)
        logger.warning("%s", line)


def _make_table(seed: int, max_rows: int, spec: PhysicalTable, width: int) -> EmbeddingTable:
    return DynamicTable(spec, width, seed=seed, max_rows=max_rows)
