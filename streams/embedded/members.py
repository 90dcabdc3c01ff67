"""Heartbeats of this process's group members, from one thread, and the removal of dead ones."""

from __future__ import annotations

import logging
import secrets
import threading
from collections.abc import Sequence
from pathlib import Path

from streams.embedded import groups
from streams.embedded.index import Index, translated
from streams.embedded.locks import boottime_s, create_with_flock, drop_flock, flock_is_free
from streams.embedded.wakeup import Bell
from streams.errors import HeadraceError

LOOK_AT_PEERS_S = 1.0
_logger = logging.getLogger(__name__)


class Member:
    """One membership: a row, and a file whose flock ends with the process."""

    def __init__(self, group: str, topics: Sequence[str], folder: Path) -> None:
        self.group = group
        self.topics = frozenset(topics)
        self.id = secrets.token_hex(8)
        self.polled_s = boottime_s()
        self._path = folder / self.id
        with translated(str(self._path)):
            self._fd = create_with_flock(self._path)

    def close(self) -> None:
        """Remove the file."""
        self._path.unlink(missing_ok=True)
        drop_flock(self._fd)


class Members:
    """All members that live in this handle of the log.

    Args:
        session_timeout_s: a process that stands still for longer loses its partitions.
        poll_timeout_s: a member that does not poll for longer loses them too; the thread stops beating for it.
    """

    def __init__(
        self, directory: Path, index: Index, bell: Bell, *, session_timeout_s: float, poll_timeout_s: float
    ) -> None:
        self.folder = directory / "members"
        self._index = index
        self._bell = bell
        self._session_timeout_s = session_timeout_s
        self._poll_timeout_s = poll_timeout_s
        self._members: dict[str, Member] = {}
        self._guard = threading.Lock()
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._beat_s = 0.0

    def join(self, group: str, topics: Sequence[str]) -> Member:
        """Become a member; partitions are divided anew at once."""
        with self._index.lock:
            member = Member(group, topics, self.folder)
            try:
                with self._index.write() as db:
                    groups.drop_dead(db, group, self.folder)
                    groups.join(db, group, member.id, topics, self._session_timeout_s)
                    groups.rebalance(db, group)
            except BaseException:
                member.close()
                raise
        self._bell.ring()
        with self._guard:
            self._members[member.id] = member
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="log-heartbeats", daemon=True)
                self._thread.start()
        return member

    def leave(self, member: Member) -> None:
        """Give the partitions back."""
        with self._guard:
            self._members.pop(member.id, None)
        try:
            with self._index.write() as db:
                groups.leave(db, member.group, member.id)
        finally:
            member.close()
        self._bell.ring()

    def forget(self, member: Member) -> None:
        """The group has thrown this member out already."""
        with self._guard:
            self._members.pop(member.id, None)
        member.close()

    def beat(self) -> None:
        """Heartbeats for those who poll; then remove members of the same groups that died."""
        now = boottime_s()
        with self._guard:
            alive = [m for m in self._members.values() if now - m.polled_s <= self._poll_timeout_s]
            group_names = sorted({m.group for m in self._members.values()})
        due = now - self._beat_s >= self._session_timeout_s / 3
        if not due and not any(self._has_dead(name) for name in group_names):
            return
        moved = False
        with self._index.beat() as db:
            # The clock is read inside: waiting for the lock must not make a fresh beat an old one.
            now = boottime_s()
            db.executemany("UPDATE member SET beat = ? WHERE id = ?", [(now, m.id) for m in alive])
            for name in group_names:
                groups.touch(db, name)
                if groups.drop_dead(db, name, self.folder):
                    moved |= groups.rebalance(db, name)
        self._beat_s = now
        if moved:
            self._bell.ring()

    def close(self) -> None:
        """Stop the thread and leave all groups."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join()
        with self._guard:
            members = list(self._members.values())
        for member in members:
            self.leave(member)

    def _has_dead(self, group: str) -> bool:
        now = boottime_s()
        with self._index.read() as db:
            rows = db.execute("SELECT id, beat, timeout_s FROM member WHERE grp = ?", (group,)).fetchall()
        return any(now - beat > timeout or flock_is_free(self.folder / name) for name, beat, timeout in rows)

    def _run(self) -> None:
        while not self._stop.wait(min(LOOK_AT_PEERS_S, self._session_timeout_s / 3)):
            try:
                self.beat()
            except HeadraceError as error:
                # Tried again soon; a member whose beats go on failing loses its partitions, and its commits fail.
                _logger.warning("heartbeat failed: %s", error)
