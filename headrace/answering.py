"""``/healthz``, ``/readyz`` and ``/metrics`` of a run, answered by a thread of the process that people started."""

from __future__ import annotations

import fcntl
import json
import os
import socket
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from headrace import logs
from headrace.health import Health
from headrace.settings import HttpSettings
from streams.errors import Usage

METRICS_TYPE = "text/plain; version=0.0.4; charset=utf-8"
REQUEST_S = 10.0

logger = logs.get("http")


class Answering:
    """Answers from ``start`` to ``close``.

    Args:
        settings: where. health: what is asked. folder: ``Project.answering``. role: for ``headrace status``.
    """

    def __init__(self, settings: HttpSettings, health: Health, folder: Path, role: str) -> None:
        self._settings, self._health, self._role = settings, health, role
        self._file = folder / f"{os.getpid()}.json"
        self._server: _Server | None = None
        self._fd = -1

    def start(self) -> None:
        """Listen. Raises ``Usage`` if the port is taken or the address is not of this machine."""
        if self._settings.port == "off":
            return
        from headrace.measures import page

        host, port = self._settings.host, int(self._settings.port)
        try:
            self._server = _Server(host, port, self._health, page(self._health.reports))
        except OSError as error:
            raise Usage(
                expected=f"to listen on {host}:{port}",
                got=str(error.strerror or error),
                where="settings http.host and http.port",
                do="Choose another port; with --set http.port=0 any free one is taken, with off none.",
            ) from None
        url = f"http://{_shown(host)}:{self._server.server_address[1]}"
        self._write({"url": url, "role": self._role, "pid": os.getpid()})
        threading.Thread(target=self._server.serve_forever, name="http", daemon=True).start()
        logger.info("answers /healthz, /readyz and /metrics", url=url)

    def close(self) -> None:
        """Stop listening. May be called twice."""
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
            self._server = None
        if self._fd >= 0:
            self._file.unlink(missing_ok=True)
            os.close(self._fd)
            self._fd = -1

    def _write(self, body: dict[str, Any]) -> None:
        self._file.parent.mkdir(parents=True, exist_ok=True)
        self._fd = os.open(self._file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        fcntl.flock(self._fd, fcntl.LOCK_EX)
        os.ftruncate(self._fd, 0)
        os.pwrite(self._fd, json.dumps(body).encode(), 0)


def answering(folder: Path) -> list[dict[str, Any]]:
    """``url``, ``role`` and ``pid`` of the processes that answer now; the kernel frees the lock of one that is gone."""
    found = []
    for path in sorted(folder.glob("*.json")):
        try:
            with path.open("rb") as file:
                if not _locked(file.fileno()):
                    continue
                body = json.load(file)
        except (OSError, ValueError):
            continue
        found.append(body)
    return found


def _locked(fd: int) -> bool:
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    return False


def _shown(host: str) -> str:
    """A host as it stands in a URL; all addresses: this machine's name."""
    if host in ("0.0.0.0", "::", ""):
        return socket.gethostname()
    return f"[{host}]" if ":" in host else host


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    allow_reuse_address = True

    def __init__(self, host: str, port: int, health: Health, metrics: Callable[[], bytes]) -> None:
        self.address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self.health, self.metrics = health, metrics
        super().__init__((host, port), _Handler)

    def server_bind(self) -> None:
        """Without the look-up of a name, which may take seconds."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.socket.bind(self.server_address)
        self.server_address = self.socket.getsockname()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Who asks may go at any time."""
        logger.debug("a request was not answered", client=str(client_address))


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    server_version, sys_version = "headrace", ""
    timeout = REQUEST_S

    def do_GET(self) -> None:
        """The three pages."""
        path = self.path.partition("?")[0]
        if path == "/healthz":
            self._say(self.server.health.alive())
        elif path == "/readyz":
            self._say(self.server.health.ready())
        elif path == "/metrics":
            self._send(200, METRICS_TYPE, self.server.metrics())
        else:
            self._send(404, "text/plain", b"/healthz, /readyz, /metrics\n")

    do_HEAD = do_GET

    def _say(self, troubles: dict[str, str]) -> None:
        body = json.dumps({"ok": not troubles, "troubles": troubles}).encode() + b"\n"
        self._send(503 if troubles else 200, "application/json", body)

    def _send(self, code: int, kind: str, body: bytes) -> None:
        self.send_response(code)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Requests are not logged."""


class Watched:
    """A display that also tells ``Health`` what it is told."""

    def __init__(self, display: Any, health: Health) -> None:
        self._display, self._health = display, health

    def report(self, child: str, report: dict[str, Any]) -> None:
        """A report of a child."""
        self._health.take(child, report)
        self._display.report(child, report)

    def text(self, child: str, line: str) -> None:
        """A line that a child wrote to stderr."""
        self._display.text(child, line)

    def tick(self) -> None:
        """Called about ten times a second."""
        self._display.tick()

    def close(self) -> None:
        """Show the last state."""
        self._display.close()
