"""Settings of a project: defaults < ``headrace.yaml`` < ``HEADRACE_*`` (nested by ``__``) < ``--set``.

Every key is checked; an unknown one is refused with the nearest name. Sizes are written ``4GiB``, durations ``60s``. What
the user may set lies in ``Settings``; the stages get their own frozen ``Config`` from it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator
from pydantic_settings import BaseSettings, InitSettingsSource, PydanticBaseSettingsSource, SettingsConfigDict

from cache.contracts import Config as CacheConfig
from cache.contracts import RedisConfig
from experiments.documents import Document, parse_document
from experiments.errors import Problem, SpecError
from experiments.fields import Duration
from experiments.loading import nearest
from headrace.quantities import Size
from ingest.contracts import Config as IngestConfig
from preprocess.contracts import Config as PreprocessConfig
from streams.kafka.config import KafkaConfig
from streams.packed import Compression
from trainer.contracts import Config as TrainConfig

PREFIX = "HEADRACE_"
FROM_FILE = "_FILE"
HIDDEN = "something else (what a file holds is not shown)"
KAFKA_CLIENT = ("security_protocol", "client_id", "client_dns_lookup")
NOT_SETTINGS = (
    "HEADRACE_BENCH_MB",
    "HEADRACE_DATA_DIR",
    "HEADRACE_KILL_AT",
    "HEADRACE_KILL_SECONDS",
    "HEADRACE_LEDGER",
    "HEADRACE_REQUIRE_SERVICES",
    "HEADRACE_SERVICES",
    "HEADRACE_SINCE",
)
"""Variables of tests, and one of a supervisor for its children; they are no settings."""

_INGEST, _PREPROCESS, _CACHE, _TRAIN = IngestConfig(), PreprocessConfig(), CacheConfig(), TrainConfig("")
_REDIS = RedisConfig("")
Count = Annotated[int, Field(ge=1)]


class Section(BaseModel):
    """A part of the settings."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class KafkaSettings(Section):
    """A log on Kafka instead of the embedded one."""

    bootstrap: str = Field(description="host:port, several with commas")
    prefix: str | None = Field(
        None, description="Of all topics, groups and transactional ids; default: the project's name"
    )
    replication: int = Field(-1, description="Of topics that are made; -1: as the broker says")
    min_insync: Count | None = Field(
        None, description="min.insync.replicas of topics that are made; default: the broker's"
    )
    deadline: Duration = Field(30_000_000, description="Of one call to Kafka")
    client: dict[str, Any] = Field({}, description="security_protocol, sasl_…, ssl_… of kafka-python", repr=False)

    @field_validator("client")
    @classmethod
    def _only_access(cls, client: dict[str, Any]) -> dict[str, Any]:
        other = [name for name in client if not name.startswith(("sasl_", "ssl_")) and name not in KAFKA_CLIENT]
        if other:
            raise ValueError(
                f"expected names that begin with sasl_ or ssl_, or {', '.join(KAFKA_CLIENT)}, got {other[0]!r}"
            )
        return client

    def config(self, project: str, session_timeout_s: float) -> KafkaConfig:
        """Of the log of this project."""
        prefix = self.prefix or re.sub(r"[^A-Za-z0-9_-]+", "-", project)[:40] or "headrace"
        return KafkaConfig(
            self.bootstrap,
            prefix,
            replication=self.replication,
            min_insync=self.min_insync,
            deadline_s=self.deadline / 1e6,
            session_timeout_s=session_timeout_s,
            client=self.client,
        )


class LogSettings(Section):
    """The embedded log, or one on Kafka."""

    kafka: KafkaSettings | None = Field(
        None, description="The log lies on Kafka; default: embedded, in the project's folder"
    )
    durability: Literal["process", "power"] = Field("process", description="power: survives a loss of power; slower")
    session_timeout: Duration = Field(10_000_000, description="A process that stands still for longer loses its work")


class IngestSettings(Section):
    """Files → raw rows."""

    max_lag: Size = Field(_INGEST.max_lag_bytes, description="Reading waits while a consumer is further behind")
    open_splits: Count = Field(_INGEST.open_splits, description="Splits that may be open at once, a feed")
    ahead: Duration = Field(_INGEST.ahead_us, description="Event time that planning may run ahead")
    split_size: Size = Field(_INGEST.split_bytes, description="Largest split of a file")
    part_rows: Count = Field(_INGEST.part_rows, description="Rows of the largest transaction of a reader")
    part_size: Size = Field(_INGEST.part_bytes, description="Bytes of the largest transaction of a reader")
    attempts: Count = Field(_INGEST.attempts, description="Times a split is begun before it is rejected")
    list_every: Duration = Field(round(_INGEST.listing_s * 1e6), description="Time between two looks at a folder")
    compression: Compression = _INGEST.raw_compression
    dead_letter_size: Size = Field(_INGEST.dead_letter_bytes, description="Bytes kept of a row that cannot be used")


class PreprocessSettings(Section):
    """Raw rows → joined rows → batches."""

    poll_size: Size = _PREPROCESS.poll_bytes
    transaction_size: Size = _PREPROCESS.transaction_bytes
    transaction_messages: Count = _PREPROCESS.transaction_messages
    side_table_size: Size = Field(_PREPROCESS.side_table_bytes, description="Largest side table held in memory")
    idle_commit: Duration = round(_PREPROCESS.idle_commit_s * 1e6)
    joined_compression: Compression = _PREPROCESS.joined_compression
    batch_compression: Compression = _PREPROCESS.batch_compression


class RedisSettings(Section):
    """A Redis that trainers share; it never changes a result."""

    url: str = Field(description="redis://[[user]:password@]host:port/db", repr=False)
    size: Size = Field(_REDIS.max_bytes, description="Budget of one version of an experiment")
    ttl: Duration = Field(round(_REDIS.ttl_s * 1e6), description="An entry goes so long after it was put")
    deadline: Duration = Field(round(_REDIS.deadline_s * 1e6), description="A call that takes longer counts as missing")

    @field_validator("url")
    @classmethod
    def _is_url(cls, url: str) -> str:
        if not url.startswith(("redis://", "rediss://", "unix://")):
            raise ValueError("expected redis://host:port/db, rediss://… or unix:///path, got another scheme")
        return url


class CacheSettings(Section):
    """Batches ahead of the trainer."""

    memory: Size = Field(_CACHE.memory_bytes, description="Memory tier of one trainer")
    prefetch: Size = Field(_CACHE.prefetch_bytes, description="Read ahead of the trainer")
    redis: RedisSettings | None = Field(None, description="Shared tier; off")


class TrainSettings(Section):
    """Trainers."""

    threads: Count = Field(_TRAIN.threads, description="Part of the model's bits: another number gives other bits")
    keep: Count = Field(_TRAIN.keep, description="Newest checkpoints kept")
    score_rows: Count = Field(_TRAIN.score_rows, description="Newest scored rows kept for metrics")
    bad_steps: Count = Field(_TRAIN.bad_steps, description="Steps that are not finite, in a row, before stopping")
    poll_size: Size = _TRAIN.poll_bytes
    max_rows: Count = Field(_TRAIN.max_rows, description="Most rows of one embedding table")


class LogsSettings(Section):
    """What roles write to stderr."""

    level: Literal["debug", "info", "warning", "error"] = "info"
    format: Literal["auto", "console", "json"] = Field("auto", description="auto: console")


class HttpSettings(Section):
    """Where ``/healthz``, ``/readyz`` and ``/metrics`` are answered: by ``run all``, ``run train`` and each single role."""

    host: str = Field("127.0.0.1", description="Address to listen on; 0.0.0.0: all. There is no password")
    port: Literal["off"] | Annotated[int, Field(ge=0, le=65535)] = Field(
        0, description="0: any free one, told by status and at start; a number: that one or none; off: no answers"
    )


class Settings(BaseSettings):
    """Everything that may be set."""

    model_config = SettingsConfigDict(extra="forbid", frozen=True)

    log: LogSettings = LogSettings()
    ingest: IngestSettings = IngestSettings()
    preprocess: PreprocessSettings = PreprocessSettings()
    cache: CacheSettings = CacheSettings()
    train: TrainSettings = TrainSettings()
    logs: LogsSettings = LogsSettings()
    http: HttpSettings = HttpSettings()

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Only what ``load_settings`` gives, in its order: first wins."""
        assert isinstance(init_settings, InitSettingsSource)
        layers: Sequence[dict[str, Any]] = init_settings.init_kwargs["layers"]
        return tuple(InitSettingsSource(settings_cls, layer) for layer in layers)

    def ingest_config(self) -> IngestConfig:
        """Of the stage ingest."""
        own = self.ingest
        return IngestConfig(
            max_lag_bytes=own.max_lag,
            open_splits=own.open_splits,
            ahead_us=own.ahead,
            split_bytes=own.split_size,
            part_rows=own.part_rows,
            part_bytes=own.part_size,
            attempts=own.attempts,
            listing_s=own.list_every / 1e6,
            raw_compression=own.compression,
            dead_letter_bytes=own.dead_letter_size,
        )

    def preprocess_config(self) -> PreprocessConfig:
        """Of the stage preprocess."""
        own = self.preprocess
        return PreprocessConfig(
            poll_bytes=own.poll_size,
            transaction_bytes=own.transaction_size,
            transaction_messages=own.transaction_messages,
            side_table_bytes=own.side_table_size,
            idle_commit_s=own.idle_commit / 1e6,
            joined_compression=own.joined_compression,
            batch_compression=own.batch_compression,
        )

    def cache_config(self) -> CacheConfig:
        """Of the stage cache."""
        own, redis = self.cache, self.cache.redis
        shared = (
            RedisConfig(redis.url, max_bytes=redis.size, ttl_s=redis.ttl / 1e6, deadline_s=redis.deadline / 1e6)
            if redis
            else None
        )
        return CacheConfig(memory_bytes=own.memory, prefetch_bytes=own.prefetch, redis=shared)

    def train_config(self, checkpoints: Path, environment: Mapping[str, str]) -> TrainConfig:
        """Of the stage trainer."""
        own = self.train
        return TrainConfig(
            directory=str(checkpoints),
            threads=own.threads,
            keep=own.keep,
            score_rows=own.score_rows,
            bad_steps=own.bad_steps,
            poll_bytes=own.poll_size,
            max_rows=own.max_rows,
            ledger=environment.get("HEADRACE_LEDGER"),
        )


def load_settings(
    file: Path | None, *, environment: Mapping[str, str] | None = None, flags: Sequence[str] = ()
) -> Settings:
    """Read and check all sources.

    Args:
        file: ``headrace.yaml``; ``None``: no file.
        environment: default: this process's.
        flags: ``a.b=value`` texts of ``--set``.

    Raises:
        SpecError: anything unknown or wrong, with the place it came from.
    """
    environment = os.environ if environment is None else environment
    document = _document(file)
    variables = _variables(environment)
    options = dict(_option(flag) for flag in flags)
    layers = [_nested(options), _nested(variables), document.data]
    try:
        return Settings(layers=layers)  # type: ignore[call-arg]
    except ValidationError as error:
        raise SpecError([_problem(item, document, variables, options) for item in error.errors()]) from None


Named = dict[tuple[str, ...], tuple[str, str]]


def _variables(environment: Mapping[str, str]) -> Named:
    """``HEADRACE_A__B=value``, and ``HEADRACE_A__B_FILE=path`` for a value that lies in a file, as secrets do."""
    found: Named = {}
    for name, value in sorted(environment.items()):
        if not name.startswith(PREFIX) or name in NOT_SETTINGS:
            continue
        where, plain = f"the variable {name}", name.removesuffix(FROM_FILE)
        path = tuple(plain[len(PREFIX) :].lower().split("__"))
        if path in found:
            raise SpecError([Problem(where, 0, "", f"{plain} or {plain}{FROM_FILE}", "both", "Keep one of them.")])
        if plain != name:
            try:
                value = Path(value).read_text(encoding="utf-8").rstrip("\n")
            except (OSError, UnicodeDecodeError) as error:
                got = error.strerror if isinstance(error, OSError) else "no text"
                problem = Problem(
                    where, 0, "", "the path of a file that can be read", f"{value}: {got}", "Check its rights."
                )
                raise SpecError([problem]) from None
        found[path] = (where, value)
    return found


def _document(file: Path | None) -> Document:
    if file is None:
        return Document("", {})
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise SpecError([Problem(str(file), 0, "", "a readable file", str(error), "Check its rights.")]) from None
    lines = (line.strip() for line in text.splitlines())
    if all(not line or line.startswith("#") for line in lines):
        return Document(str(file), {})
    return parse_document(text, str(file))


def _option(flag: str) -> tuple[tuple[str, ...], tuple[str, str]]:
    name, found, value = flag.partition("=")
    if not found or not name:
        raise SpecError([Problem("--set", 0, "", "NAME=VALUE, for example train.keep=5", repr(flag))])
    return tuple(name.strip().split(".")), (f"--set {name}", value)


def _nested(named: Named) -> dict[str, Any]:
    """Names → nested mappings; a name inside another one's value is left to the check of values."""
    data: dict[str, Any] = {}
    for path, (_, value) in sorted(named.items()):
        inner = data
        for part in path[:-1]:
            found = inner.setdefault(part, {})
            inner = found if isinstance(found, dict) else {}
        inner[path[-1]] = value
    return data


def _problem(item: Any, document: Document, variables: Named, options: Named) -> Problem:
    path = tuple(str(part) for part in item["loc"])
    file, line, shown = document.file, document.line_of(path), ".".join(path)
    for named in (variables, options):
        for name, (where, _) in named.items():
            if name[: len(path)] == path or path[: len(name)] == name:
                file, line, shown = where, 0, ""
    if item["type"] == "extra_forbidden":
        known = _keys(path[:-1])
        return Problem(
            file, line, shown, f"one of {', '.join(known)}", f"the key {path[-1]!r}", nearest(path[-1], known)
        )
    if item["type"] == "value_error":
        expected, _, got = str(item["ctx"]["error"]).removeprefix("expected ").rpartition(", got ")
        return Problem(file, line, shown, expected, HIDDEN if file.endswith(FROM_FILE) else got)
    if file.endswith(FROM_FILE):
        return Problem(file, line, shown, str(item["msg"]).removeprefix("Input should be "), HIDDEN)
    expected = str(item["msg"]).removeprefix("Input should be ")
    near = nearest(str(item["input"]), [word.strip("'") for word in expected.replace(" or ", ", ").split(", ")])
    return Problem(file, line, shown, expected, repr(item["input"]), near)


def _keys(path: Sequence[str]) -> list[str]:
    model: type[BaseModel] = Settings
    for part in path:
        inner = model.model_fields[part].annotation if part in model.model_fields else None
        if not (isinstance(inner, type) and issubclass(inner, BaseModel)):
            return []
        model = inner
    return list(model.model_fields)
