"""Whether the file systems of feeds answer, asked before anything is begun."""

from __future__ import annotations

from collections.abc import Iterable

from experiments.feed import Feed
from streams.errors import Unreachable


def require_reachable(feeds: Iterable[Feed]) -> None:
    """Ask the file system of each feed with a URL; a folder that is not there yet is fine. Takes 3 s for one that is away.

    Raises:
        Unreachable: the first that does not answer. Usage: its library is missing.
    """
    for feed in feeds:
        if "://" in feed.files.url:
            _probe(feed)


def look_at(feed: Feed) -> str:
    """What the folder of a feed with a URL holds, in words. Raises ``Unreachable``, ``Usage``."""
    from ingest.sources import Folder

    if not _probe(feed):
        return f"feed {feed.feed}: {feed.files.url} answers; the folder is not there yet"
    listing = Folder(feed.files.url, feed.files.match).list()
    more = f", {len(listing.unmatched)} that do not match" if listing.unmatched else ""
    return f"feed {feed.feed}: {feed.files.url} answers; {len(listing.files)} files{more}"


def _probe(feed: Feed) -> bool:
    from ingest.sources import Folder

    try:
        return Folder(feed.files.url).probe()
    except Unreachable as error:
        raise Unreachable(
            expected=error.expected,
            got=error.got,
            where=f"feed {feed.feed}: {feed.files.url}",
            do="Check the URL, HADOOP_CONF_DIR for a name service, and that the file system is up; then run this again.",
        ) from error
