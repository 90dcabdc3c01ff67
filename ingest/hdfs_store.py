"""Folders on HDFS, by hdfs-native: no JVM. ``HADOOP_CONF_DIR`` (name services, Kerberos) and ``HADOOP_USER_NAME`` count.

What was measured of hdfs-native 0.14.7 and is dealt with here:
- a call to a NameNode that stands still never returns, and one that is gone is tried for minutes: each call has a deadline;
- errors are ``RuntimeError`` with a Rust name, or ``OSError`` without a number: they become ``Away``, ``PermissionError`` or
  ``OSError(EIO)``, so that nobody takes trouble with the service for damage of the file;
- a listing does not say whether a file is still being written (``Hdfs.why_open``).
"""

from __future__ import annotations

import errno
import io
import itertools
import queue
import threading
import urllib.parse
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import pyarrow as pa
from hdfs_native import Client, FileReader, FileStatus

from ingest.stores import Away, FoundFile

DEADLINE_S = 8.0
"""Of one call: below the session timeout of the log, so that a reader that waits for HDFS does not lose its splits."""

PAGE_FILES = 1000
READ_BYTES = 8 * 1024 * 1024
AHEAD_BYTES = 1024 * 1024
"""Least read of one call when a file is read on from where the last read ended."""

MOST_LOST = 64
"""Calls that missed their deadline and have not come back."""

CLIENT = {
    "dfs.client.failover.max.attempts": "3",
    "dfs.client.failover.sleep.base.millis": "200",
    "dfs.client.failover.sleep.max.millis": "1000",
    "dfs.client.socket-timeout": "3000",
}
"""Our own tries come after these, so the client's are short (3 s)."""

T = TypeVar("T")


class Hdfs:
    """``Store`` of a folder by ``hdfs://`` URL; without a host: of ``fs.defaultFS`` in ``HADOOP_CONF_DIR``. Connects if called."""

    def __init__(self, url: str) -> None:
        parts = urllib.parse.urlparse(url)
        self._base = f"{parts.scheme}://{parts.netloc}" if parts.netloc else None
        self._root = urllib.parse.unquote(parts.path).rstrip("/")
        self._client: Client | None = None
        self._calls = Calls()

    def files(self) -> list[FoundFile] | None:
        """See the contract. In pages: a deadline for each, none for the whole."""
        found: list[FoundFile] = []
        client = self._connected()
        try:
            listing = self._call(lambda: client.list_status(self._root or "/", True))
            while page := self._call(lambda: list(itertools.islice(listing, PAGE_FILES))):
                found += [self._found(status) for status in page if not status.isdir]
        except FileNotFoundError:  # the folder, or one below that went meanwhile: the next listing tells
            if self.exists():
                raise Away(errno.EAGAIN, "a folder went away while it was listed") from None
            return None
        return found

    def stat(self, path: str) -> FoundFile | None:
        """See the contract."""
        status = self._status(path)
        return self._found(status) if status and not status.isdir else None

    def exists(self) -> bool:
        """See the contract."""
        status = self._status("")
        return bool(status and status.isdir)

    def open(self, path: str) -> pa.NativeFile:
        """See the contract. A file that is being appended to is ``Away``: what could be read of it is less than it holds."""
        reader = self._reader(path)
        status = self._status(path)
        if status is not None and status.length != len(reader):
            raise Away(errno.EBUSY, f"{path}: it is being written again")
        return pa.PythonFile(_File(reader, self._call), mode="r")

    def put(self, path: str, pieces: Iterable[bytes]) -> None:
        """Write a new file and close it; folders are made. Raises ``OSError``; what is there then is not closed."""
        client = self._connected()
        writer = self._call(lambda: client.create(self._full(path)))
        for piece in pieces:
            self._call(lambda piece=piece: writer.write(piece))  # type: ignore[misc]
        self._call(writer.close)

    def why_open(self, file: FoundFile) -> str:
        """HDFS tells it by two signs. While the last block grows, the length in the directory and that of the readable blocks
        differ, or the length is that of the finished blocks: a whole number of blocks, or 0. And only closing a file sets its
        time of change after its time of access, which both begin as the time of creation."""
        status = self._status(file.path)
        if status is None or self._found(status) != file:
            return f"{file.path}: it changed since it was listed"
        if status.length % (status.blocksize or 1) == 0 and status.modification_time <= status.access_time:
            return (
                f"{file.path}: it is still being written (or: its length is a whole number of blocks, and nothing shows that it"
                f" was closed; then: hdfs dfs -touch -m {self._full(file.path)})"
            )
        if status.length and len(self._reader(file.path)) != status.length:
            return f"{file.path}: it is still being written"
        return ""

    def _reader(self, path: str) -> FileReader:
        client = self._connected()
        return self._call(lambda: client.read(self._full(path)))

    def _status(self, path: str) -> FileStatus | None:
        client = self._connected()
        try:
            return self._call(lambda: client.get_file_info(self._full(path)))
        except FileNotFoundError:
            return None

    def _full(self, path: str) -> str:
        return f"{self._root}/{path}" if path else self._root or "/"

    def _found(self, status: FileStatus) -> FoundFile:
        return FoundFile(status.path[len(self._root) :].lstrip("/"), status.length, status.modification_time * 1000)

    def _connected(self) -> Client:
        if self._client is None:
            self._client = self._call(lambda: Client(self._base, CLIENT))
        return self._client

    def _call(self, work: Callable[[], T]) -> T:
        try:
            return self._calls.run(work)
        except Away:
            self._client = None  # its connection may be dead without knowing it
            raise


class Calls:
    """Runs calls in a thread of its own, so that they can be given up. One at a time; the order is kept."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._work: queue.SimpleQueue[tuple[Callable[[], Any], queue.SimpleQueue[tuple[bool, Any]]]] | None = None
        self._lost = 0

    def run(self, work: Callable[[], T], deadline_s: float = DEADLINE_S) -> T:
        """What ``work`` returns, or what it raises, as the file system's own error.

        Raises:
            Away: not in time; no answer; the answer is that it cannot now. FileNotFoundError. PermissionError.
            OSError: with ``errno``: the bytes are damaged.
        """
        with self._lock:
            if self._lost >= MOST_LOST:
                raise Away(errno.EBUSY, f"{self._lost} calls to HDFS have not come back; none is begun until one does")
            if self._work is None:
                self._work = queue.SimpleQueue()
                threading.Thread(target=self._serve, args=(self._work,), name="hdfs", daemon=True).start()
            answer: queue.SimpleQueue[tuple[bool, Any]] = queue.SimpleQueue()
            self._work.put((work, answer))
            try:
                done, value = answer.get(timeout=deadline_s)
            except queue.Empty:
                self._work.put((_leave, answer))
                self._work, self._lost = None, self._lost + 1
                raise Away(errno.ETIMEDOUT, f"no answer within {deadline_s:g} s") from None
        if done:
            return value  # type: ignore[no-any-return]
        raise translated(value) from value

    def _serve(self, work: queue.SimpleQueue[tuple[Callable[[], Any], queue.SimpleQueue[tuple[bool, Any]]]]) -> None:
        while True:
            call, answer = work.get()
            if call is _leave:
                self._lost -= 1
                return
            try:
                answer.put((True, call()))
            except Exception as error:
                answer.put((False, error))
            del call, answer  # what came too late is not kept


def _leave() -> None:
    """The thread ends: nobody waits for it any more."""


def translated(error: Exception) -> Exception:
    """The library's error as one of the file system: ``Away`` unless it is known to be about the file."""
    first = (str(error).splitlines() or [""])[0][:300]
    if isinstance(error, FileNotFoundError):
        return FileNotFoundError(errno.ENOENT, first)
    if isinstance(error, (OSError, RuntimeError)):
        if "AccessControlException" in first:
            return PermissionError(errno.EACCES, first)
        if "ChecksumError" in first:
            return OSError(errno.EIO, first)
        if any(sign in first for sign in ("SASL", "GSSAPI", "Kerberos", "AccessControl", "SIMPLE authentication")):
            return Away(errno.EACCES, f"HDFS and this client do not agree on authentication: {first}")
        if "RPC listener disconnected" in first:  # the library does not pass on what was said last
            first += " (no NameNode's RPC port, or a cluster that wants KERBEROS while this client is set to SIMPLE)"
        if "No NameNode hosts found" in first:
            first = "a host needs its port (hdfs://host:8020/…); a name service, HADOOP_CONF_DIR with its hdfs-site.xml"
        return Away(errno.EIO, first)
    return error


class _File(io.RawIOBase):
    """A file of hdfs-native as pyarrow reads it: each read under the deadline, small reads in a row put together."""

    def __init__(self, reader: FileReader, call: Callable[[Callable[[], Any]], Any]) -> None:
        super().__init__()
        self._reader, self._call = reader, call
        self._size, self._at, self._last = len(reader), 0, -1
        self._ahead, self._ahead_at = b"", 0

    def readable(self) -> bool:
        """Yes."""
        return True

    def seekable(self) -> bool:
        """Yes."""
        return True

    def tell(self) -> int:
        """Place of the next byte."""
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """As of any file."""
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}[whence]
        self._at = max(0, base + offset)
        return self._at

    def read(self, size: int = -1) -> bytes:
        """Up to ``size`` bytes, fewer only at the end. Raises ``Away``."""
        end = self._size if size < 0 else min(self._size, self._at + size)
        pieces = []
        while self._at < end:
            piece = self._piece(min(end - self._at, READ_BYTES))
            pieces.append(piece)
            self._at += len(piece)
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def _piece(self, want: int) -> bytes:
        skip = self._at - self._ahead_at
        if 0 <= skip < len(self._ahead):
            return self._ahead[skip : skip + want]
        begin = self._at
        length = min(AHEAD_BYTES, self._size - begin) if begin == self._last and want < AHEAD_BYTES else want
        data: bytes = self._call(lambda: self._reader.read_range(begin, length))
        if len(data) != length:
            raise Away(errno.EIO, f"expected {length} bytes at {begin}, got {len(data)}")
        self._last = begin + length
        if length > want:
            self._ahead, self._ahead_at = data, begin
        return data[:want] if length > want else data
