"""What a role says about itself while it runs: to its supervisor through a pipe, or to people."""

from __future__ import annotations

import json
import os
from typing import Any, Protocol

STDOUT = 1


class Reporter(Protocol):
    """Takes reports of a role."""

    def report(self, report: dict[str, Any]) -> None:
        """About once a second, and at the end. JSON types."""


class PipeReporter:
    """To the supervisor, one JSON line each on stdout."""

    def report(self, report: dict[str, Any]) -> None:
        """Write it. Blocks while the pipe is full."""
        data = json.dumps(report, separators=(",", ":"), default=str).encode() + b"\n"
        while data:
            data = data[os.write(STDOUT, data) :]
