"""A version being trained by this process: its model, its place in the log, its checkpoints. The caller holds the lock."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from experiments.names import train_group
from experiments.view import Version
from ingest.contracts import T_END
from preprocess.contracts import LocalBatch, layout_of, rows_of
from streams.contracts import Clock, Log, TopicInfo, TopicPartition
from streams.errors import Broken, Usage
from streams.killpoints import reached
from streams.packed import Limits
from trainer.checkpoint.load import Expected, Found, find, read_state
from trainer.checkpoint.manifest import LogPlace, Manifest, read_manifest
from trainer.checkpoint.save import About, clean, prune, save
from trainer.contracts import Config, PartitionPosition, Step, Tally, TrainerState
from trainer.errors import NonFinite
from trainer.folder import add_start, checkpoint_folders, version_folder
from trainer.learner import Learner, MakeTable, Outcome, state_of
from trainer.ledger import Ledger
from trainer.metrics import skewed, summary
from trainer.position import GroupPosition
from trainer.quarantine import NOT_FINITE, UNREADABLE, Quarantine
from trainer.reading import Reader
from trainer.runtime import differences, fingerprint, prepare
from trainer.scores import ScoreLog
from trainer.source import Held, Shape, Source
from trainer.steps import Buckets


@dataclass(frozen=True, slots=True)
class Setup:
    """What a session works with.

    Args:
        topic: of the version's batches. make_table, make_reader: called once. warn: gets lines for people.
    """

    log: Log
    version: Version
    topic: TopicInfo
    config: Config
    clock: Clock
    make_table: MakeTable
    make_reader: Callable[[TopicInfo], Reader]
    warn: Callable[[str], None]


class Session:
    """See the module. Making one loads the newest checkpoint that fits, or starts cold; it takes seconds."""

    def __init__(self, setup: Setup) -> None:
        self._setup = setup
        version, config = setup.version, setup.config
        if config.keep < 1:
            raise Usage(
                expected="at least 1",
                got=str(config.keep),
                where="setting train.keep",
                do="Keep one checkpoint or more.",
            )
        self.folder = version_folder(config.directory, version.name, version.number)
        self._layout = layout_of(version.experiment)
        prepare(config.threads)
        self._fingerprint = fingerprint(config.threads)
        self.learner = Learner(version.experiment, self._layout, setup.make_table)
        self._scores = ScoreLog(config.score_rows, self.folder)
        self.step = 0
        self.at: Step | None = None
        self.tally = Tally()
        self.manifest: Manifest | None = None
        self.checkpoint_path: Path | None = None
        self.bit_identical = True
        self.stuck = False
        positions = self._resume()
        self._saved = (self.step, self.tally)
        self._saved_at_s = setup.clock.monotonic_s()
        self._ledger = Ledger(Path(config.ledger) / self.folder.name) if config.ledger else None
        if self._ledger:
            self._ledger.restart(self.step)
        self._quarantine = Quarantine(setup.log, version.name, train_group(version.name, version.number))
        self._group = GroupPosition(setup.log, version, setup.topic, setup.clock)
        self._reader = setup.make_reader(setup.topic)
        self._reader.start({partition: position.next_offset for partition, position in enumerate(positions)})
        every = version.view.sample.cuts.every
        full_rows = version.experiment.train.batch_rows // version.view.partitions
        self.source = Source(self._reader, Shape(self._layout, full_rows, Buckets(every), Limits()), positions)
        self._start = positions
        self._group.keep(self._oldest_positions())
        self._group.commit(self.source.positions, self.step)

    def train_one(self) -> bool:
        """Train the next step if it is proven. ``False``: nothing can be trained now (see ``stuck``)."""
        ready = self.source.next()
        self._put_aside_unreadable()
        if ready is None:
            # Looked at after nothing was taken: a message that comes in between is not taken yet, so it is no end.
            self.stuck = all(head or self._reader.at_end(p) for p, head in enumerate(self.source.heads))
            return False
        self.stuck = False
        step, held = ready
        self.step, self.at = self.step + 1, step
        parts = [part.batch for part in held if part.batch.rows]
        if parts:
            self._account(step, held, self.learner.train(parts), parts)
        return True

    def wait(self, timeout_s: float) -> None:
        """Block until there may be another batch, or the time is over."""
        self._reader.wait(timeout_s)

    @property
    def drained(self) -> bool:
        """Whether the input has ended and all of it was used."""
        return all(position.V >= T_END for position in self.source.positions) and not any(self.source.heads)

    @property
    def dirty(self) -> bool:
        """Whether anything happened since the last checkpoint."""
        return (self.step, self.tally) != self._saved

    @property
    def due(self) -> bool:
        """Whether it is time for a checkpoint. Not between steps that were skipped one after the other: so that stopping
        there rolls back to before the first."""
        every = self._setup.version.experiment.train.checkpoint_every
        if not self.dirty or self.tally.bad_in_a_row:
            return False
        if every.steps:
            return self.step // every.steps > self._saved[0] // every.steps
        return self._setup.clock.monotonic_s() - self._saved_at_s >= (every.us or 0) / 1e6

    def checkpoint(self) -> bool:
        """Write a checkpoint, remove old ones, let retention go on. ``False`` if nothing happened since the last one."""
        if not self.dirty:
            return False
        state = TrainerState(
            step=self.step,
            at=self.at,
            positions=tuple(self.source.positions),
            tally=self.tally,
            **state_of(self.learner),  # type: ignore[arg-type]
        )
        self.manifest = save(self.folder, state, self._scores, self._about(), self._sync)
        self.checkpoint_path = self.folder / f"{self.step:012d}"
        self._saved = (self.step, self.tally)
        self._saved_at_s = self._setup.clock.monotonic_s()
        prune(self.folder, self._setup.config.keep)
        # Step 7: retention may go up to the oldest checkpoint that is kept.
        self._group.keep(self._oldest_positions())
        self._group.commit(self.source.positions, self.step)
        reached("checkpoint.7")
        return True

    def commit_position(self) -> None:
        """Tell lag and back-pressure how far training has come, about once a second."""
        self._group.commit_now_and_then(self.source.positions, self.step)

    def metrics(self) -> dict[str, Any]:
        """As of now: reads all scores."""
        tally = self.tally
        values: dict[str, Any] = summary(self._scores.parts(), self._scores.rows, self._scores.first)
        values["skew_over_1h"] = tally.skewed_rows / tally.rows if tally.rows else None
        return values

    def close(self) -> None:
        """Release; what is not in a checkpoint is dropped. May be called twice."""
        self._reader.close()
        self._quarantine.close()
        self._group.close()

    def _sync(self) -> None:
        """Everything outside the checkpoint's folder that belongs to it is durable."""
        if self._ledger:
            self._ledger.write(self.step)
        self._setup.log.sync()

    def _resume(self) -> list[PartitionPosition]:
        setup = self._setup
        self.folder.mkdir(parents=True, exist_ok=True)
        clean(self.folder)
        expected = Expected(setup.version, self._layout, setup.log, setup.topic)
        found = find(self.folder, expected, setup.warn)
        partitions = range(setup.topic.spec.partitions)
        if found is None:
            tps = [TopicPartition(setup.topic.spec.name, partition) for partition in partitions]
            begin = setup.log.begin_offsets(tps)
            positions = [PartitionPosition(begin[tp]) for tp in tps]
        else:
            positions = self._take_over(found)
        add_start(self.folder, self.step, setup.clock.wall_us())
        return positions

    def _take_over(self, found: Found) -> list[PartitionPosition]:
        state, manifest = read_state(found, self._layout), found.manifest
        self.learner.load(state)
        self._scores.load(found.path, () if found.scores_lost else manifest.scores, state.tally.rows)
        self.step, self.at, self.tally = state.step, state.at, state.tally
        self.manifest, self.checkpoint_path = manifest, found.path
        changed = differences(manifest.fingerprint, self._fingerprint)
        self.bit_identical = manifest.bit_identical and not changed
        if changed:
            self._setup.warn(
                f"{self._setup.version.label}: not bit-identical from here (step {self.step}): {'; '.join(changed)}. The model"
                " is as good, but another run will not give the same bits."
            )
        return list(state.positions)

    def _put_aside_unreadable(self) -> None:
        for message in self.source.unreadable:
            self._quarantine.put([message.record], UNREADABLE, str(message.error))
            self._setup.warn(f"{self._setup.version.label}: a batch was kept out of training. {message.error}")
            self.tally = replace(
                self.tally,
                rejected_rows=self.tally.rejected_rows + rows_of(message.record),
                unreadable=self.tally.unreadable + 1,
                unreadable_in_a_row=self.tally.unreadable_in_a_row + 1,
            )
            if self.tally.unreadable_in_a_row >= self._setup.config.bad_steps:
                raise Broken(
                    expected="batches that can be read",
                    got=f"{self.tally.unreadable_in_a_row} in a row that can't, the last: {message.error}",
                    where=self._setup.topic.spec.name,
                    do="The whole topic seems to be damaged or written by another version of the program. Nothing of this was"
                    " saved. Restore the log, or publish the experiment under another name.",
                )
        self.source.unreadable.clear()

    def _account(self, step: Step, held: list[Held], outcome: Outcome, parts: list[LocalBatch]) -> None:
        rows, tally = len(outcome.labels_B), self.tally
        if outcome.fault:
            self.tally = replace(
                tally,
                rejected_rows=tally.rejected_rows + rows,
                bad_steps=tally.bad_steps + 1,
                bad_in_a_row=tally.bad_in_a_row + 1,
            )
            self._skip(step, held, outcome)
            return
        self._scores.add(outcome.times_B, outcome.labels_B, outcome.scores_B)
        if self._ledger:
            self._ledger.add(self.step, parts)
        self.tally = replace(
            tally,
            rows=tally.rows + rows,
            skewed_rows=tally.skewed_rows + skewed(outcome.times_B, tally.newest_us),
            newest_us=max(tally.newest_us, int(outcome.times_B.max())),
            bad_in_a_row=0,
            unreadable_in_a_row=0,
        )

    def _skip(self, step: Step, held: list[Held], outcome: Outcome) -> None:
        detail = f"step {self.step} (bucket {step.bucket}, batch {step.number}): not finite: {outcome.fault}"
        self._quarantine.put([part.record for part in held], NOT_FINITE, detail)
        self._setup.warn(f"{self._setup.version.label}: skipped {detail}.")
        if self.tally.bad_in_a_row >= self._setup.config.bad_steps:
            raise NonFinite(
                expected="finite loss and gradients",
                got=f"{self.tally.bad_in_a_row} steps in a row that are not, the last: {outcome.fault}",
                where=f"{self._setup.version.label}, {detail}",
                do="Training stopped and rolled back to the last checkpoint"
                f" ({self.checkpoint_path or 'none: the beginning'}). The batches are in dlq.{self._setup.version.name}. Lower the"
                " learning rates or clip the features, and publish again.",
            )

    def _about(self) -> About:
        version, topic = self._setup.version, self._setup.topic
        files = self.manifest.files if self.manifest else {}
        return About(
            experiment=version.name,
            version=version.number,
            hash=version.hash,
            created_us=self._setup.clock.wall_us(),
            log=LogPlace(self._setup.log.id, topic.spec.name, topic.id),
            metrics=self.metrics(),
            fingerprint=self._fingerprint,
            bit_identical=self.bit_identical,
            files=files,
        )

    def _oldest_positions(self) -> Sequence[PartitionPosition]:
        """Where the oldest kept checkpoint stands; without one, where training started."""
        for path in reversed(checkpoint_folders(self.folder)):
            try:
                return read_manifest(path).partitions
            except Broken:  # it can't be gone back to; the next one counts
                continue
        return self._start
