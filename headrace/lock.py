"""``run.lock``: one ``run all`` in a project, or any number of single roles.

The kernel frees it when the holder dies; it is not inherited by children.
"""

from __future__ import annotations

import fcntl
import json
import os
import time
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, Literal

from streams.errors import Usage

PATIENCE_S = {"running": 2.0, "stopping": 10.0}
"""How long a start waits: for a tree that was just killed, and for one that drains."""

_MODES = {"alone": fcntl.LOCK_EX, "shared": fcntl.LOCK_SH}


@dataclass(slots=True)
class RunLock:
    """The right to run roles in a project."""

    path: Path
    mode: Literal["alone", "shared"]
    _fd: int = field(default=-1)

    def acquire(self) -> None:
        """Take it; waits for a tree that is dying. Raises ``Usage`` with its pid and start time if it goes on."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self._fd = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        began_s = time.monotonic()
        while True:
            try:
                fcntl.flock(self._fd, _MODES[self.mode] | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                holder = self._holder()
                patience_s = PATIENCE_S.get(str(holder.get("state")), PATIENCE_S["running"])
                if time.monotonic() - began_s >= patience_s:
                    self.release()
                    raise self._refusal(holder) from None
                time.sleep(0.05)
        if self.mode == "alone":
            self.mark("running")

    def mark(self, state: Literal["running", "stopping"]) -> None:
        """Tell those who wait what the holder does."""
        now = datetime.now().astimezone().isoformat(timespec="seconds")
        body = {"pid": os.getpid(), "state": state, "started": self._holder().get("started", now)}
        if state == "running":
            body["started"] = now
        os.ftruncate(self._fd, 0)
        os.pwrite(self._fd, json.dumps(body).encode(), 0)

    def release(self) -> None:
        """Give it back. May be called twice."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def _holder(self) -> dict[str, Any]:
        try:
            body = json.loads(os.pread(self._fd, 4096, 0))
        except ValueError:
            return {}
        return body if isinstance(body, dict) else {}

    def _refusal(self, holder: dict[str, Any]) -> Usage:
        if self.mode == "shared":
            got = f"`run all` with pid {holder.get('pid', '?')}, started {holder.get('started', '?')}"
        else:
            got = f"roles that run already (the last `run all`: pid {holder.get('pid', '?')}, started {holder.get('started', '?')})"
            if holder.get("state") in PATIENCE_S and _alive(holder.get("pid")):
                got = f"`run all` with pid {holder['pid']}, started {holder.get('started', '?')}"
        return Usage(
            expected="no other run in this project folder",
            got=got,
            where=str(self.path),
            do="Wait for it, or stop it (Ctrl-C there, or kill its pid). `headrace status` works beside it.",
        )


def _alive(pid: object) -> bool:
    return isinstance(pid, int) and Path(f"/proc/{pid}").exists()
