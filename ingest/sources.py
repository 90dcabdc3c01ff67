"""Folders of files by URL: list, tell files from markers, open.

Local paths and ``file://`` through pyarrow's own file system, ``hdfs://`` through hdfs-native, everything else through fsspec.
Nobody else knows which.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

import fsspec
import pyarrow as pa
import pyarrow.fs as pafs
import xxhash

from ingest.stores import ArrowStore, FoundFile, FsspecHandler, Store
from streams.errors import Unreachable, Usage

SKIPPED_STARTS = ("_", ".")
SKIPPED_ENDS = ("._COPYING_", ".tmp", ".inprogress", ".crc")
LOCAL_SETTLE_US = 2_000_000
REMOTE_SETTLE_US = 30_000_000
__all__ = ["Folder", "FoundFile", "Listing", "is_hdfs", "is_marker"]
_EDGE = 64 * 1024


@dataclass(frozen=True, slots=True)
class Listing:
    """What a folder holds.

    Args:
        files: that match, in path order. skipped: names of markers, checksums, unfinished copies.
        unmatched: names of other files. missing: the folder itself is not there.
    """

    files: list[FoundFile]
    skipped: list[str] = field(default_factory=list)
    unmatched: list[str] = field(default_factory=list)
    missing: bool = False


class Folder:
    """A folder by URL.

    Args:
        url: local path or URL. match: glob over the relative path.

    Raises:
        Usage: the URL's scheme is unknown or its library is missing.
    """

    def __init__(self, url: str, match: str = "*") -> None:
        self.url = url
        self.remote = "://" in url and not url.startswith("file://")
        self._store = _resolve(url)
        self._match = _pattern(match)

    @property
    def settle_us(self) -> int:
        """Default age below which a file may still be written. HDFS tells which file is being written, so it needs no more."""
        return REMOTE_SETTLE_US if self.remote and not is_hdfs(self.url) else LOCAL_SETTLE_US

    def list(self) -> Listing:
        """All files now. Raises ``Unreachable``."""
        try:
            found = self._store.files()
        except (OSError, UnicodeDecodeError) as error:
            raise self._unreachable(error) from error
        listing = Listing([], missing=found is None)
        for file in found or ():
            if is_marker(file.path):
                listing.skipped.append(file.path)
            elif self._match.match(file.path):
                listing.files.append(file)
            else:
                listing.unmatched.append(file.path)
        listing.files.sort(key=lambda file: file.path)
        return listing

    def reachable(self) -> bool:
        """Whether the folder is there."""
        try:
            return self._store.exists()
        except OSError:
            return False

    def probe(self) -> bool:
        """Whether the folder is there; one that does not answer is an error. Raises ``Unreachable``."""
        try:
            return self._store.exists()
        except OSError as error:
            raise self._unreachable(error) from error

    def stat(self, path: str) -> FoundFile | None:
        """One file now; ``None`` if it is gone. Raises ``OSError``."""
        return self._store.stat(path)

    def open(self, path: str) -> pa.NativeFile:
        """Open for reading at any place. Raises ``OSError``."""
        return self._store.open(path)

    def why_open(self, file: FoundFile) -> str:
        """Why a listed file counts as one that is being written; empty if it does not, or nobody can know. Raises ``OSError``."""
        return self._store.why_open(file)

    def fingerprint(self, file: FoundFile) -> str:
        """xxh3-64 of size, first and last 64 KiB: tells a file that was replaced. Raises ``OSError``."""
        with self.open(file.path) as handle:
            digest = xxhash.xxh3_64(str(file.size).encode())
            digest.update(handle.read(_EDGE))
            if file.size > _EDGE:
                handle.seek(max(_EDGE, file.size - _EDGE))
                digest.update(handle.read(_EDGE))
        return digest.hexdigest()

    def _unreachable(self, error: Exception) -> Unreachable:
        return Unreachable(
            expected="a folder that can be listed",
            got=str(error),
            where=self.url,
            do="Check the URL, the rights, and that the file system is up; listing is tried again.",
        )


def is_marker(path: str) -> bool:
    """Whether a name is a marker, a checksum or an unfinished copy: any part starting with _ or ., or a telling end."""
    return (
        path.startswith(SKIPPED_STARTS) or path.endswith(SKIPPED_ENDS) or any(f"/{c}" in path for c in SKIPPED_STARTS)
    )


def is_hdfs(url: str) -> bool:
    """Whether this is a folder on HDFS."""
    return url.startswith("hdfs://")


def _resolve(url: str) -> Store:
    try:
        if "://" not in url:
            return ArrowStore(pafs.LocalFileSystem(), url.rstrip("/") or "/")
        if url.startswith("file://"):
            return ArrowStore(pafs.LocalFileSystem(), url.removeprefix("file://").rstrip("/") or "/")
        if is_hdfs(url):
            from ingest.hdfs_store import Hdfs

            return Hdfs(url)
        system, root = fsspec.core.url_to_fs(url)
    except (ValueError, ImportError) as error:
        raise Usage(
            expected="a local folder or a URL that fsspec knows",
            got=f"{url!r}: {error}",
            where="files.url",
            do="Correct the URL, or install the library it names.",
        ) from error
    return ArrowStore(pafs.PyFileSystem(FsspecHandler(system)), str(root).rstrip("/"))


def _pattern(match: str) -> re.Pattern[str]:
    """Glob over the whole relative path: ``*`` and ``?`` stay inside a part, ``**`` crosses parts, ``**/`` may be nothing."""
    out = (
        re.escape(match)
        .replace(r"\*\*/", "(?:.*/)?")
        .replace(r"\*\*", ".*")
        .replace(r"\*", "[^/]*")
        .replace(r"\?", "[^/]")
    )
    return re.compile(out + r"\Z", re.DOTALL)
