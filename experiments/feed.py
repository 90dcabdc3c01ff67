"""A feed: where files are, their format and types, key and event time. See ``docs/reference.md``."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, PlainSerializer, WithJsonSchema, model_validator

from experiments.fields import ColumnType, Duration, Moment, Name, is_list, parse_duration_us

MINUTE_US = 60_000_000


class Spec(BaseModel):
    """Base of all that users write: unknown keys are refused, objects are frozen."""

    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True, strict=False)


class Files(Spec):
    """Where the files are."""

    url: str = Field(description="Folder: relative to the project folder, or a URL such as hdfs://host/path")
    match: str = Field("*", description="Glob over the path below the folder, for example *.tsv or **/*.parquet")
    order: Literal["any", "in_order"] = Field("any", description="in_order: the order of paths is the order of time")


class Delimited(Spec):
    """CSV and its kin."""

    sep: Annotated[str, Field(min_length=1, max_length=1)] = ","
    header: bool = True
    quote: Annotated[str, Field(max_length=1)] = Field('"', description="Empty: no quoting")
    list_sep: Annotated[str, Field(min_length=1, max_length=1)] = " "
    null: str = Field(
        "", description="The text of a null; an empty cell of a string column is null too if this is empty"
    )


class Parquet(Spec):
    """Apache Parquet."""


class Format(Spec):
    """One of the formats."""

    delimited: Delimited | None = None
    parquet: Parquet | None = None

    @model_validator(mode="before")
    @classmethod
    def _from_word(cls, value: object) -> object:
        return {value: {}} if isinstance(value, str) else value

    @model_validator(mode="after")
    def _one(self) -> Self:
        if len(self.model_fields_set) != 1:
            raise ValueError("expected exactly one format: parquet, or delimited: {sep: ...}")
        return self


class Column(Spec):
    """A column that is read."""

    type: ColumnType
    source: str | None = Field(None, alias="from", description="Name in the file, if it differs")
    optional: bool = Field(False, description="Files without this column are read, with nulls in its place")

    @model_validator(mode="before")
    @classmethod
    def _from_word(cls, value: object) -> object:
        return {"type": value} if isinstance(value, str) else value


class EventTime(Spec):
    """When the row happened."""

    column: str
    unit: Literal["s", "ms", "us", "ns"] = Field("s", description="Of a number; a timestamp column needs none")
    zone: str | None = Field(None, description="For naive timestamps and texts: the zone they were written in")


def _parse_every(value: object) -> int | None:
    if value is False or value == "off" or value is None:  # YAML 1.1 reads a bare off as false
        return None
    if (us := parse_duration_us(value)) <= 0:
        raise ValueError("expected a positive duration such as 60s, or off")
    return us


Every = Annotated[
    int | None,
    BeforeValidator(_parse_every),
    PlainSerializer(lambda us: "off" if us is None else f"{us}us"),
    WithJsonSchema({"anyOf": [{"type": "string"}, {"const": False}], "examples": ["60s", "off"]}),
]


class Cuts(Spec):
    """Where joined messages close."""

    rows: Annotated[int, Field(ge=1, le=1_000_000)] = 4096
    every: Every = Field(MINUTE_US, description="Bucket of event time; off: one bucket for all time")


class Feed(Spec):
    """A folder of files of one kind; becomes the topic ``raw.<feed>``. Times are µs."""

    feed: Name
    files: Files
    format: Format
    columns: Annotated[dict[str, Column], Field(min_length=1)]
    event_time: EventTime | None = None
    snapshot: bool = Field(False, description="A side table, complete once its files are read")
    key: Annotated[tuple[str, ...], Field(min_length=1)]
    partitions: Annotated[int, Field(ge=1, le=1024)] = 4
    cuts: Cuts = Cuts()
    disorder: Duration = 0
    file_disorder: Duration = 0
    min_time: Moment = 631_152_000_000_000
    max_future: Duration = 5 * MINUTE_US
    settle: Duration | None = Field(
        None, description="A file younger than this is not listed yet; 2s local, 30s remote"
    )

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.snapshot == (self.event_time is not None):
            raise ValueError("expected either event_time: {column: ...} or snapshot: true, exactly one of them")
        used = {"key": self.key, "event_time": (self.event_time.column,) if self.event_time else ()}
        for where, columns in used.items():
            for column in columns:
                if column not in self.columns:
                    raise ValueError(
                        f"{where} names the column {column!r}, which is not in columns: {', '.join(self.columns)}"
                    )
                if is_list(self.columns[column].type):
                    raise ValueError(f"{where} names the column {column!r}, which is a list")
        if len(set(self.key)) != len(self.key):
            raise ValueError(f"key names a column twice: {', '.join(self.key)}")
        return self

    def source_of(self, column: str) -> str:
        """The name of a column inside the files."""
        return self.columns[column].source or column
