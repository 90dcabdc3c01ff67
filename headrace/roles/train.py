"""The role train for one version: a trainer with batches read ahead through the cache."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from cache.contracts import Config, Tier
from cache.memory import MemoryTier
from cache.prefetch import Prefetcher
from cache.tiers import TieredCache
from experiments import names
from experiments.view import Version
from headrace.endings import Ending
from headrace.lags import train_stage
from headrace.look import Look
from headrace.roles.loop import Made, Parts, Seldom
from streams.contracts import TopicInfo
from trainer.loop import Trainer
from trainer.reading import Reader


class TrainRole:
    """See the module. Ends, too, when its version is retired."""

    name = "train"

    def __init__(self, parts: Parts, look: Look, ending: Ending, version: Version) -> None:
        self._lag = Seldom(lambda: train_stage(look, version))
        self._parts, self._ending, self._version = parts, ending, version
        self._settings = parts.settings.cache_config()
        self._cache = TieredCache(_tiers(self._settings, version.label))
        self._config = parts.settings.train_config(parts.project.checkpoints, os.environ)
        self._trainer = self._make()
        self._retired = False

    def wanted(self) -> Mapping[tuple[str, str], Made]:
        """The trainer, while its version is live."""
        version = self._version
        live = any((v.name, v.number) == (version.name, version.number) for v in self._parts.registry.live())
        self._retired = not live
        return {("train", version.label): Made(version.hash, self._renewed)} if live else {}

    def upkeep(self) -> None:
        """Nothing."""

    def over(self) -> bool:
        """As the ending says, or its version was retired."""
        return self._retired or self._ending.train_over(self._trainer)

    def wait(self, timeout_s: float) -> None:
        """For batches that were read ahead."""
        self._trainer.wait(timeout_s)

    def waiting(self) -> str:
        """For its topic, or for another trainer of the version to end."""
        state = self._trainer.report()["state"]
        if state == "standby":
            return f"because another trainer of {self._version.label} runs; this one takes over when it ends"
        return f"for the topic of {self._version.label}" if state == "waiting" else ""

    def drain(self) -> None:
        """Write what was trained, unless the version is gone."""
        if self._retired:
            self._parts.log.delete_group(names.train_group(self._version.name, self._version.number))
        else:
            self._trainer.checkpoint()

    def report(self) -> dict[str, Any]:
        """Of the trainer."""
        report = self._trainer.report()
        fields = (
            "state", "rows_trained", "rows_rejected", "steps", "auc", "log_loss", "checkpoint_step", "cache", "warnings",
            "tables", "table_bytes",
        )  # fmt: skip
        lag = self._lag()
        return (
            {"version": self._version.label}
            | {name: report.get(name) for name in fields}
            | {
                "checkpoint_s": _written_s(report.get("checkpoint")),
                "lag": lag,
                "work": lag["lag_messages"],
                # Rows that are not proven to be a step's wait for others: whoever keeps them back is not ready.
                "waits": report["state"] != "training",
            }
        )

    def close(self) -> None:
        """Release the cache."""
        self._cache.close()

    def _renewed(self) -> Trainer:
        """The trainer; another one after the first was closed."""
        if self._trainer.report()["state"] == "closed":
            self._trainer = self._make()
        return self._trainer

    def _make(self) -> Trainer:
        return Trainer(
            self._parts.log, self._version, self._config, self._cache, clock=self._parts.clock, make_reader=self._reader
        )

    def _reader(self, topic: TopicInfo) -> Reader:
        reader: Reader = Prefetcher(
            self._parts.log,
            topic,
            self._cache,
            max_bytes=self._settings.prefetch_bytes,
            poll_bytes=self._config.poll_bytes,
        )
        return reader


def _written_s(checkpoint: object) -> float | None:
    """When a checkpoint was written, in seconds since 1970; ``None`` if there is none, or it was just removed."""
    try:
        return os.stat(str(checkpoint)).st_mtime if checkpoint else None
    except FileNotFoundError:
        return None


def _tiers(config: Config, label: str) -> list[Tier]:
    """Nearest first."""
    tiers: list[Tier] = [MemoryTier(config.memory_bytes)]
    if config.redis is not None:
        from cache.redis_tier import RedisTier

        tiers.append(RedisTier(config.redis, label))
    return tiers
