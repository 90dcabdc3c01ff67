"""What a folder of files is kept in: one contract, and its implementation over pyarrow and fsspec. HDFS: ``ingest.hdfs_store``."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.fs as pafs


@dataclass(frozen=True, slots=True)
class FoundFile:
    """A file of a listing: path relative to the folder, bytes, time of the last change (µs)."""

    path: str
    size: int
    mtime_us: int


class Away(OSError):
    """The file system does not answer, or cannot give the bytes now. Says nothing about the file: reading is tried again for as
    long as it takes, and no row is rejected for it."""


class Store(Protocol):
    """A folder. Paths are relative to it. All calls may block, and raise ``OSError``."""

    def files(self) -> list[FoundFile] | None:
        """All files in it and below, markers too, in no order; ``None``: the folder is not there."""

    def stat(self, path: str) -> FoundFile | None:
        """One file now; ``None``: it is gone."""

    def exists(self) -> bool:
        """Whether the folder is there."""

    def open(self, path: str) -> pa.NativeFile:
        """Open for reading at any place."""

    def why_open(self, file: FoundFile) -> str:
        """Why this file counts as one that somebody still writes, for people; empty if it does not, or nobody can know."""


class ArrowStore:
    """``Store`` over a file system of pyarrow."""

    def __init__(self, system: pafs.FileSystem, root: str) -> None:
        self._fs, self._root = system, root

    def files(self) -> list[FoundFile] | None:
        """See the contract."""
        found = self._fs.get_file_info(pafs.FileSelector(self._root, recursive=True, allow_not_found=True))
        if not found and not self._is_folder():
            return None
        at = len(self._root)
        return [_found(info.path[at:].lstrip("/"), info) for info in found if info.type == pafs.FileType.File]

    def stat(self, path: str) -> FoundFile | None:
        """See the contract."""
        info = self._fs.get_file_info(f"{self._root}/{path}")
        return _found(path, info) if info.type == pafs.FileType.File else None

    def exists(self) -> bool:
        """See the contract."""
        return self._is_folder()

    def open(self, path: str) -> pa.NativeFile:
        """See the contract."""
        return self._fs.open_input_file(f"{self._root}/{path}")

    def why_open(self, file: FoundFile) -> str:
        """These file systems do not tell."""
        return ""

    def _is_folder(self) -> bool:
        return bool(self._fs.get_file_info(self._root).type == pafs.FileType.Directory)


class FsspecHandler(pafs.FSSpecHandler):  # type: ignore[misc]
    """fsspec's file systems name the time of the last change differently; pyarrow knows one name."""

    @staticmethod
    def _create_file_info(path: str, info: dict[str, Any]) -> pafs.FileInfo:
        keys = ("mtime", "last_modified", "LastModified", "modification_time", "created")
        changed = next((info[key] for key in keys if info.get(key) is not None), None)
        seconds = changed.timestamp() if isinstance(changed, datetime) else changed
        return pafs.FSSpecHandler._create_file_info(path, info | {"mtime": seconds})


def _found(path: str, info: pafs.FileInfo) -> FoundFile:
    return FoundFile(path, info.size or 0, (info.mtime_ns or 0) // 1000)
