"""One Redis, in memory only."""

from __future__ import annotations

import json
import signal
import socket
from collections.abc import Sequence
from pathlib import Path

from dev.daemon import Daemon, Launch, free_ports
from dev.programs import redis_server

READY_S = 15.0


class Redis:
    """A server in ``folder``, on the loopback; the same folder has the same port.

    Args:
        launch: see ``dev.daemon``. arguments: of ``redis-server``, after ours.
    """

    name = "redis"

    def __init__(self, folder: Path, launch: Launch, arguments: Sequence[str] = ()) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        ports = folder / "ports.json"
        if not ports.exists():
            ports.write_text(json.dumps(free_ports(1)))
        (self.port,) = json.loads(ports.read_text())
        command = [redis_server(), "--port", str(self.port), "--bind", "127.0.0.1", "--dir", str(folder)]
        command += ["--save", "", "--appendonly", "no", "--daemonize", "no", *arguments]
        self.daemon = Daemon("redis", command, folder, launch)

    @property
    def url(self) -> str:
        """As users write it."""
        return f"redis://127.0.0.1:{self.port}/0"

    def start(self) -> None:
        """Start, wait until it answers."""
        self.daemon.start()
        self.daemon.wait(self._answers, READY_S)

    def stop(self) -> None:
        """Shut down."""
        self.daemon.stop()

    def kill(self) -> None:
        """kill −9."""
        self.daemon.kill()

    def stand_still(self) -> None:
        """SIGSTOP."""
        self.daemon.signal(signal.SIGSTOP)

    def go_on(self) -> None:
        """SIGCONT."""
        self.daemon.signal(signal.SIGCONT)

    def _answers(self) -> bool:
        with socket.create_connection(("127.0.0.1", self.port), timeout=1) as connection:
            connection.sendall(b"PING\r\n")
            return connection.recv(16).startswith((b"+PONG", b"-NOAUTH"))
