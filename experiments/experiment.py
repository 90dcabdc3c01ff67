"""An experiment: sample, labels, look-ups, features, tables, model, training. See ``docs/reference.md``."""

from __future__ import annotations

import math
import re
from typing import Annotated, Literal, Self

from pydantic import (
    BeforeValidator,
    Discriminator,
    Field,
    PlainSerializer,
    Tag,
    WithJsonSchema,
    model_validator,
)

from experiments.feed import Spec, Worded
from experiments.fields import (
    Flag,
    Name,
    Number,
    Whole,
    format_duration,
    format_time,
    misfit,
    parse_duration_us,
    parse_moment_us,
)

FEATURE_KINDS = ("id", "hash", "cross", "dense", "hour_of", "day_of_week")


def _parse_pair(value: object) -> object:
    if isinstance(value, list | tuple) and len(value) == 2:
        return value
    raise ValueError(f"expected [low, high], got {value!r}")


Pair = Annotated[tuple[Number, Number], BeforeValidator(_parse_pair)]


def _parse_equals(value: object) -> object:
    if isinstance(value, bool | int | str) or (isinstance(value, float) and math.isfinite(value)):
        return value
    raise ValueError(f"expected a number, a text, true or false, got {value!r}")


Equals = Annotated[Flag | Number | str, BeforeValidator(_parse_equals)]


class ColumnLabel(Spec):
    """A label from a column of the sample: as it is (0 or 1), or by a rule."""

    column: str = Field(description="Of the sample; without a rule its values are 0 and 1, or false and true")
    at_least: Number | None = Field(None, description="1 where the value is at least this")
    equals: Equals | None = Field(None, description="1 where the value equals this")
    range: Pair | None = Field(None, description="Rows outside [low, high] go to the dead letters")

    @model_validator(mode="after")
    def _one_rule(self) -> Self:
        if self.at_least is not None and self.equals is not None:
            raise misfit("at_least or equals", "both")
        if self.range and self.range[0] > self.range[1]:
            raise misfit("[low, high]", str(list(self.range)), "range")
        return self


class Lookup(Spec):
    """A side table: ``item.category`` is the column ``category`` of the row whose key equals ``on``."""

    feed: str = Field(description="A snapshot with one key column")
    on: str = Field(description="Column of the sample, of the type of that key")


class Clip(Spec):
    """Limit to [low, high]."""

    clip: Pair = Field(description="[low, high]")

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if not self.clip[0] <= self.clip[1]:
            raise misfit("[low, high]", str(list(self.clip)), "clip")
        return self


class Scale(Spec):
    """(x − offset) · factor."""

    scale: Number = Field(description="The factor")
    offset: Number = Field(0.0, description="Subtracted before")


def _op_kind(value: object) -> str | None:
    if isinstance(value, str):
        return "Word"
    for kind, model in (("clip", Clip), ("scale", Scale)):
        if isinstance(value, model) or (isinstance(value, dict) and kind in value):
            return model.__name__
    return None


DenseOp = Annotated[
    Annotated[Literal["log1p", "sqrt"], Tag("Word")] | Annotated[Clip, Tag("Clip")] | Annotated[Scale, Tag("Scale")],
    Discriminator(
        _op_kind,
        custom_error_type="op",
        custom_error_message="log1p, sqrt, {clip: [low, high]} or {scale: factor, offset: number}",
    ),
]
"""Each is total: log1p and sqrt take max(x, 0); the result is clamped to the float32 range."""


class Feature(Spec):
    """One feature. Exactly one of ``id hash cross dense hour_of day_of_week``.

    Columns are named ``column`` (of the sample) or ``lookup.column``.
    """

    id: str | None = Field(None, description="Integer column, used as the id as it is")
    hash: str | None = Field(None, description="Column of any type, hashed")
    cross: Annotated[tuple[str, ...], Field(min_length=2, max_length=8)] | None = Field(
        None, description="Columns hashed together"
    )
    dense: str | None = Field(None, description="Numeric column, used as a number")
    hour_of: str | None = Field(None, description="Hour 0..23 of a time")
    day_of_week: str | None = Field(None, description="Day 0..6, Monday = 0, of a time")
    table: Name | None = Field(None, description="Embedding table; default: the feature's name")
    last: Annotated[Whole, Field(ge=1, le=100_000)] | None = Field(None, description="Of a list: the last n items")
    pool: Literal["mean", "sum"] = Field("sum", description="Of a list: how the vectors of its items become one")
    ops: tuple[DenseOp, ...] = Field((), description="Of a dense feature, in this order: log1p, sqrt, clip, scale")
    default: Number = Field(0.0, description="Of a dense feature: for null, NaN and infinite values")
    zone: str = Field("UTC", description="Of hour_of and day_of_week")

    @model_validator(mode="after")
    def _one_kind(self) -> Self:
        kinds = [kind for kind in FEATURE_KINDS if getattr(self, kind) is not None]
        if len(kinds) != 1:
            raise misfit(f"exactly one of {', '.join(FEATURE_KINDS)}", ", ".join(kinds) or "none")
        allowed = {
            "dense": {"dense", "ops", "default"},
            "hour_of": {"hour_of", "zone", "table"},
            "day_of_week": {"day_of_week", "zone", "table"},
            "cross": {"cross", "table"},
            "id": {"id", "table", "last", "pool"},
            "hash": {"hash", "table", "last", "pool"},
        }[kinds[0]]
        if extra := self.model_fields_set - allowed:
            got = f"{', '.join(sorted(extra))} in a {kinds[0]} feature"
            raise misfit(f"only {', '.join(sorted(allowed))}", got, sorted(extra)[0])
        return self

    @property
    def kind(self) -> str:
        """Which of ``FEATURE_KINDS``."""
        return next(kind for kind in FEATURE_KINDS if getattr(self, kind) is not None)

    @property
    def columns(self) -> tuple[str, ...]:
        """Columns the feature reads."""
        value = getattr(self, self.kind)
        return value if isinstance(value, tuple) else (value,)


class RowwiseAdagrad(Spec):
    """One accumulator a row: the mean of squared gradients."""

    lr: Annotated[Number, Field(gt=0)] = Field(0.05, description="Learning rate")
    eps: Annotated[Number, Field(gt=0)] = Field(1e-8, description="Added to the divisor")
    initial: Annotated[Number, Field(ge=0)] = Field(0.0, description="What the accumulator begins with")


class TableOptimizer(Worded):
    """One of the optimizers of tables."""

    rowwise_adagrad: RowwiseAdagrad = Field(RowwiseAdagrad(), description="Adagrad with one step size a row")


class Table(Spec):
    """An embedding table (logical): rows are made when an id is first seen."""

    dim: Annotated[Whole, Field(ge=1, le=1024)] = Field(16, description="Numbers a row")
    optimizer: TableOptimizer = Field(TableOptimizer(), description="How rows learn; a word takes its defaults")
    init: Annotated[Number, Field(ge=0, le=10)] = Field(0.01, description="New rows are uniform in ±init, from the id")


class Lr(Spec):
    """Logistic regression over ids and dense features."""


class DeepFm(Spec):
    """DeepFM (Guo et al. 2017): linear part, pairwise interactions, and an MLP over the same embeddings."""

    mlp: Annotated[tuple[Annotated[Whole, Field(ge=1, le=65_536)], ...], Field(max_length=16)] = Field(
        (128, 64), description="Widths of the hidden layers"
    )
    dropout: Annotated[Number, Field(ge=0, lt=1)] = Field(
        0.0, description="Share of hidden values left out while training"
    )


class Model(Worded):
    """One of the models."""

    lr: Lr | None = Field(None, description="Logistic regression; no settings")
    deepfm: DeepFm | None = Field(None, description="DeepFM; vectors of equal dim interact")

    @model_validator(mode="after")
    def _one(self) -> Self:
        if len(self.model_fields_set) != 1 or getattr(self, next(iter(self.model_fields_set))) is None:
            got = ", ".join(sorted(self.model_fields_set)) or "none"
            raise misfit("one model: lr, or deepfm: {mlp: [128, 64]}", got)
        return self


class Adam(Spec):
    """Adam (Kingma and Ba 2015) of the dense parameters."""

    lr: Annotated[Number, Field(gt=0)] = Field(0.001, description="Learning rate")
    beta1: Annotated[Number, Field(ge=0, lt=1)] = Field(0.9, description="Of the mean of gradients")
    beta2: Annotated[Number, Field(ge=0, lt=1)] = Field(0.999, description="Of the mean of their squares")
    eps: Annotated[Number, Field(gt=0)] = Field(1e-8, description="Added to the divisor")


class DenseOptimizer(Worded):
    """One of the optimizers of dense parameters."""

    adam: Adam = Field(Adam(), description="Adam")


class CheckpointEvery(Spec):
    """Steps or time, exactly one."""

    steps: int | None = None
    us: int | None = None


def _parse_checkpoint_every(value: object) -> object:
    if isinstance(value, str) and (match := re.match(r"^(\d{1,12}) steps?$", value.strip())):
        if int(match[1]) < 1:
            raise ValueError(f"expected at least 1 step, got {value!r}")
        return CheckpointEvery(steps=int(match[1]))
    if isinstance(value, CheckpointEvery):
        return value
    try:
        us = parse_duration_us(value)
    except ValueError:
        raise ValueError(f"expected a number of steps or a time, for example 200 steps or 60s, got {value!r}") from None
    if us <= 0:
        raise ValueError(f"expected a positive time, for example 60s, got {value!r}")
    return CheckpointEvery(us=us)


def _format_checkpoint_every(value: CheckpointEvery) -> str:
    return f"{value.steps} steps" if value.steps else format_duration(value.us or 0)


class Train(Spec):
    """How the version is trained."""

    batch_rows: Annotated[Whole, Field(ge=1, le=1_000_000)] = Field(
        4096, description="Rows of a step, over all partitions"
    )
    dense_optimizer: DenseOptimizer = Field(DenseOptimizer(), description="Of what is not in tables")
    checkpoint_every: Annotated[
        CheckpointEvery,
        BeforeValidator(_parse_checkpoint_every),
        PlainSerializer(_format_checkpoint_every),
        WithJsonSchema({"type": "string", "examples": ["200 steps", "60s"]}),
    ] = Field(CheckpointEvery(us=60_000_000), description="A number of steps, or a time")
    seed: Annotated[Whole, Field(ge=0, lt=2**63)] = Field(0, description="Of new rows, dense parameters and dropout")


def _parse_start(value: object) -> object:
    return value if value in ("earliest", "latest") else parse_moment_us(value)


Start = Annotated[
    Literal["earliest", "latest"] | int,
    BeforeValidator(_parse_start),
    PlainSerializer(lambda value: value if isinstance(value, str) else format_time(value)),
    WithJsonSchema({"type": "string", "examples": ["earliest", "latest", "2024-05-01"]}),
]


class Experiment(Spec):
    """What a model engineer publishes."""

    experiment: Name = Field(description="Its name; no feed has the same")
    sample: str = Field(description="The feed whose rows are learned from")
    labels: Annotated[dict[Name, ColumnLabel], Field(min_length=1, max_length=1)] = Field(
        description="What is learned: one label, by name"
    )
    lookups: dict[Name, Lookup] = Field(default_factory=dict, description="Side tables, by the name used in features")
    features: Annotated[dict[Name, Feature], Field(min_length=1)] = Field(
        description="What it is learned from, by name"
    )
    tables: dict[Name, Table] = Field(
        default_factory=dict, description="Settings of embedding tables; default: of the rest"
    )
    model: Model
    train: Train = Field(Train(), description="How it is trained")
    start: Start = Field(
        "earliest", description="earliest: the first stored row; latest; or a date or time. Resolved at publish"
    )

    @model_validator(mode="after")
    def _tables_used(self) -> Self:
        used = {self.table_of(name) for name, feature in self.features.items() if feature.kind != "dense"}
        if unknown := set(self.tables) - used - {"default"}:
            word = sorted(unknown)[0]
            expected = f"tables that a feature uses ({', '.join(sorted(used)) or 'none'}), or default"
            raise misfit(expected, repr(word), "tables", word, words=[word, *used])
        return self

    def table_of(self, feature: str) -> str:
        """The logical table of an id feature."""
        return self.features[feature].table or feature

    def table_spec(self, table: str) -> Table:
        """The settings of a logical table: its own, else ``tables.default``, else the built-in ones."""
        return self.tables.get(table) or self.tables.get("default") or Table()
