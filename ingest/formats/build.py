"""Which format a feed has."""

from __future__ import annotations

from experiments.feed import Feed
from ingest.contracts import Config
from ingest.formats.delimited import DelimitedFormat
from ingest.formats.parquet import ParquetFormat
from ingest.formats.reading import Format


def format_of(feed: Feed, config: Config) -> Format:
    """The format object of a feed."""
    return ParquetFormat(feed, config) if feed.format.parquet is not None else DelimitedFormat(feed, config)
