"""A feed: where files are, their format and types, key and event time. See ``docs/reference.md``."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Any, ClassVar, Literal, Self, get_args

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    GetJsonSchemaHandler,
    PlainSerializer,
    WithJsonSchema,
    model_validator,
)
from pydantic_core import CoreSchema

from experiments.fields import (
    ColumnName,
    ColumnType,
    Duration,
    Flag,
    Moment,
    Name,
    Whole,
    format_duration,
    is_list,
    is_zone,
    misfit,
    parse_duration_us,
)

MINUTE_US = 60_000_000
TIME_TYPES = ("int64", "uint64", "float64", "timestamp")
"""Of an event time column. Not float32: at today's seconds it rounds to two minutes."""


class Spec(BaseModel):
    """Base of all that users write: unknown keys are refused, objects are frozen."""

    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True, strict=False)


class Worded(Spec):
    """A choice that may be written as one word: ``model: lr`` is ``model: {lr: {}}``."""

    words: ClassVar[tuple[str, ...] | None] = None
    """The words; ``None``: names of the fields."""

    @model_validator(mode="before")
    @classmethod
    def _from_word(cls, value: object) -> object:
        return cls.of_word(value) if isinstance(value, str) else value

    @classmethod
    def of_word(cls, word: str) -> object:
        """What a word stands for."""
        return {word: {}}

    @classmethod
    def __get_pydantic_json_schema__(cls, core: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        return {"anyOf": [{"enum": list(cls.words or cls.model_fields)}, handler(core)]}


def _words(names: Iterable[str]) -> str:
    return ", ".join(sorted(names)) or "none"


class Files(Spec):
    """Where the files are."""

    url: str = Field(
        min_length=1, description="Folder: relative to the project folder, or a URL such as hdfs://host/path"
    )
    match: str = Field(
        "*", min_length=1, description="Glob over the path below the folder, for example *.tsv or **/*.parquet"
    )
    order: Literal["any", "in_order"] = Field("any", description="in_order: the order of paths is the order of time")


class Delimited(Spec):
    """CSV and its kin."""

    sep: Annotated[str, Field(min_length=1, max_length=1)] = Field(",", description='Between cells; a tab is "\\t"')
    header: Flag = Field(True, description="The first line holds names; false: cells are in the order of columns")
    quote: Annotated[str, Field(max_length=1)] = Field('"', description="Empty: no quoting")
    list_sep: Annotated[str, Field(min_length=1, max_length=1)] = Field(" ", description="Between items of a list cell")
    null: str = Field(
        "", description="The text of a null; an empty cell of a string column is null too if this is empty"
    )

    @model_validator(mode="after")
    def _distinct(self) -> Self:
        for name, sign in (("sep", self.sep), ("quote", self.quote)):
            if not sign.isascii() or sign in ("\n", "\r"):
                raise misfit("one ASCII character that ends no line", repr(sign), name)
        if self.sep == self.quote:
            raise misfit("another character than sep", repr(self.quote), "quote")
        return self


class Parquet(Spec):
    """Apache Parquet."""


class Format(Worded):
    """One of the formats."""

    delimited: Delimited | None = None
    parquet: Parquet | None = None

    @model_validator(mode="after")
    def _one(self) -> Self:
        if len(self.model_fields_set) != 1 or getattr(self, next(iter(self.model_fields_set))) is None:
            raise misfit("one format: parquet, or delimited: {sep: …}", _words(self.model_fields_set))
        return self


class Column(Worded):
    """A column that is read."""

    words: ClassVar[tuple[str, ...]] = get_args(ColumnType)

    type: ColumnType = Field(description="Never guessed; a value that does not fit rejects its row")
    source: str | None = Field(None, alias="from", min_length=1, description="Name in the file, if it differs")
    optional: Flag = Field(False, description="Files without this column are read, with nulls in its place")

    @classmethod
    def of_word(cls, word: str) -> object:
        """A type."""
        return {"type": word}


class EventTime(Spec):
    """When the row happened."""

    column: str = Field(description="Of type int64, uint64, float64 or timestamp")
    unit: Literal["s", "ms", "us", "ns"] = Field("s", description="Of a number; a timestamp column needs none")
    zone: str | None = Field(None, description="For naive timestamps and texts: the zone they were written in")

    @model_validator(mode="after")
    def _known_zone(self) -> Self:
        if self.zone is not None and not is_zone(self.zone):
            raise misfit("a zone such as UTC or Asia/Shanghai", repr(self.zone), "zone")
        return self


def _parse_every(value: object) -> int | None:
    if value is False or value == "off":  # YAML 1.1 reads a bare off as false
        return None
    if (us := parse_duration_us(value)) <= 0:
        raise ValueError(f"expected a positive duration such as 60s, or off, got {value!r}")
    return us


Every = Annotated[
    int | None,
    BeforeValidator(_parse_every),
    PlainSerializer(lambda us: "off" if us is None else format_duration(us)),
    WithJsonSchema({"anyOf": [{"type": "string"}, {"const": False}], "examples": ["60s", "off"]}),
]


class Cuts(Spec):
    """Where joined messages close."""

    rows: Annotated[Whole, Field(ge=1, le=1_000_000)] = Field(4096, description="Rows of a joined message, at most")
    every: Every = Field(MINUTE_US, description="Bucket of event time; off: one bucket for all time")


class Feed(Spec):
    """A folder of files of one kind; becomes the topic ``raw.<feed>``. Times are µs."""

    feed: Name = Field(description="Its name")
    files: Files
    format: Format
    columns: Annotated[dict[ColumnName, Column], Field(min_length=1)] = Field(
        description="What is read, by name; a word is the type. Columns of the files that are not listed are not read"
    )
    event_time: EventTime | None = Field(
        None, description="When a row happened; a side table has snapshot: true instead"
    )
    snapshot: Flag = Field(False, description="A side table, complete once its files are read")
    key: Annotated[tuple[str, ...], Field(min_length=1)] = Field(
        description="Spreads rows over partitions (not where cuts.every is off); of a snapshot: unique"
    )
    partitions: Annotated[Whole, Field(ge=1, le=1024)] = Field(4, description="Fixed for the life of the feed")
    cuts: Cuts = Field(Cuts(), description="Where joined messages close; of the feed, so of all its experiments")
    disorder: Duration = Field(0, description="How much older than the row before a row of one file may be")
    file_disorder: Duration = Field(0, description="The same between files")
    min_time: Moment = Field(631_152_000_000_000, description="Older event times are rejected")
    max_future: Duration = Field(5 * MINUTE_US, description="Event times this far after planning are rejected")
    settle: Duration | None = Field(
        None, description="A file younger than this is not listed yet; 2s local, 30s remote"
    )

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.snapshot == (self.event_time is not None):
            got = "both" if self.snapshot else "neither"
            raise misfit("event_time: {column: …} or, for a side table, snapshot: true", got)
        used = {"key": self.key, "event_time": (self.event_time.column,) if self.event_time else ()}
        for where, columns in used.items():
            for column in columns:
                if column not in self.columns:
                    got = f"{column!r}, which is not in columns"
                    raise misfit("a column", got, where, words=[column, *self.columns])
                if is_list(self.columns[column].type):
                    raise misfit("a column that is no list", f"{column!r} of type {self.columns[column].type}", where)
        if len(set(self.key)) != len(self.key):
            raise misfit("each column once", ", ".join(self.key), "key")
        if self.event_time and (kind := self.columns[self.event_time.column].type) not in TIME_TYPES:
            got = f"{self.event_time.column!r} of type {kind}"
            raise misfit(f"a column of type {', '.join(TIME_TYPES)}", got, "event_time", "column")
        if self.format.delimited and any(is_list(column.type) for column in self.columns.values()):
            self._distinct_list_sep(self.format.delimited)
        return self

    @staticmethod
    def _distinct_list_sep(cells: Delimited) -> None:
        if cells.list_sep in (cells.sep, "\n", "\r"):
            raise misfit("a list_sep other than sep", repr(cells.list_sep), "format", "delimited", "list_sep")

    def source_of(self, column: str) -> str:
        """The name of a column inside the files."""
        return self.columns[column].source or column
