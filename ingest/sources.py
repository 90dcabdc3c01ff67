"""Folders of files by URL: list, tell files from markers, open.

Local paths and ``file://`` through pyarrow's own file system, everything else through fsspec. Nobody else knows which.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import fsspec
import pyarrow as pa
import pyarrow.fs as pafs
import xxhash

from streams.errors import Unreachable, Usage

SKIPPED_STARTS = ("_", ".")
SKIPPED_ENDS = ("._COPYING_", ".tmp", ".inprogress", ".crc")
LOCAL_SETTLE_US = 2_000_000
REMOTE_SETTLE_US = 30_000_000
_EDGE = 64 * 1024


@dataclass(frozen=True, slots=True)
class FoundFile:
    """A file of a listing: path relative to the folder, bytes, time of the last change (µs)."""

    path: str
    size: int
    mtime_us: int


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
        self._fs, self._root = _resolve(url)
        self._match = _pattern(match)

    @property
    def settle_us(self) -> int:
        """Default age below which a file may still be written."""
        return REMOTE_SETTLE_US if self.remote else LOCAL_SETTLE_US

    def list(self) -> Listing:
        """All files now. Raises ``Unreachable``."""
        try:
            found = self._fs.get_file_info(pafs.FileSelector(self._root, recursive=True, allow_not_found=True))
            missing = not found and self._fs.get_file_info(self._root).type != pafs.FileType.Directory
        except (OSError, UnicodeDecodeError) as error:
            raise self._unreachable(error) from error
        listing = Listing([], missing=missing)
        for info in found:
            if info.type != pafs.FileType.File:
                continue
            path = info.path[len(self._root) :].lstrip("/")
            if is_marker(path):
                listing.skipped.append(path)
            elif self._match.match(path):
                listing.files.append(FoundFile(path, info.size or 0, (info.mtime_ns or 0) // 1000))
            else:
                listing.unmatched.append(path)
        listing.files.sort(key=lambda file: file.path)
        return listing

    def reachable(self) -> bool:
        """Whether the folder is there."""
        try:
            return bool(self._fs.get_file_info(self._root).type == pafs.FileType.Directory)
        except OSError:
            return False

    def stat(self, path: str) -> FoundFile | None:
        """One file now; ``None`` if it is gone."""
        info = self._fs.get_file_info(f"{self._root}/{path}")
        if info.type != pafs.FileType.File:
            return None
        return FoundFile(path, info.size or 0, (info.mtime_ns or 0) // 1000)

    def open(self, path: str) -> pa.NativeFile:
        """Open for reading at any place. Raises ``OSError``."""
        return self._fs.open_input_file(f"{self._root}/{path}")

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


def _resolve(url: str) -> tuple[pafs.FileSystem, str]:
    try:
        if "://" not in url:
            return pafs.LocalFileSystem(), url.rstrip("/") or "/"
        if url.startswith("file://"):
            return pafs.LocalFileSystem(), url.removeprefix("file://").rstrip("/") or "/"
        system, root = fsspec.core.url_to_fs(url)
    except (ValueError, ImportError) as error:
        raise Usage(
            expected="a local folder or a URL that fsspec knows",
            got=f"{url!r}: {error}",
            where="files.url",
            do="Correct the URL, or install the library it names.",
        ) from error
    return pafs.PyFileSystem(_Handler(system)), str(root).rstrip("/")


class _Handler(pafs.FSSpecHandler):  # type: ignore[misc]
    """fsspec's file systems name the time of the last change differently; pyarrow knows one name."""

    @staticmethod
    def _create_file_info(path: str, info: dict[str, Any]) -> pafs.FileInfo:
        keys = ("mtime", "last_modified", "LastModified", "modification_time", "created")
        changed = next((info[key] for key in keys if info.get(key) is not None), None)
        seconds = changed.timestamp() if isinstance(changed, datetime) else changed
        return pafs.FSSpecHandler._create_file_info(path, info | {"mtime": seconds})


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
