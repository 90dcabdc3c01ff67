"""Progress of a run, to stderr: a live picture on a terminal, else one line in ten seconds."""

from __future__ import annotations

import sys
import time
from typing import Any, Protocol

from headrace import logs

LINE_S = 10.0
REDRAW_S = 0.25

logger = logs.get("progress")


class Display(Protocol):
    """Shows what roles report (``supervisor.Watcher``)."""

    def report(self, child: str, report: dict[str, Any]) -> None:
        """A report of a child."""

    def text(self, child: str, line: str) -> None:
        """A line that a child wrote to stderr."""

    def tick(self) -> None:
        """Called about ten times a second."""

    def close(self) -> None:
        """Show the last state."""


class State:
    """The newest report of each child, and speeds."""

    def __init__(self) -> None:
        self.reports: dict[str, dict[str, Any]] = {}
        self._marks: dict[str, tuple[float, int]] = {}
        self._speeds: dict[str, float] = {}

    def take(self, child: str, report: dict[str, Any]) -> None:
        """Keep a report."""
        self.reports[child] = report
        now_s = time.monotonic()
        for name, feed in report.get("feeds", {}).items():
            self._measure(f"feed {name}", now_s, feed["rows"])
        if report.get("role") == "train":
            self._measure(child, now_s, report.get("rows_trained") or 0)

    def lines(self) -> list[str]:
        """One line for each feed and experiment."""
        lines = []
        for child, report in sorted(self.reports.items()):
            for name, feed in report.get("feeds", {}).items():
                lines.append(self._feed_line(name, feed))
            if report.get("role") == "train" and report.get("state") != "closed":
                lines.append(self._train_line(child, report))
        return lines

    def _feed_line(self, name: str, feed: dict[str, Any]) -> str:
        state = "closed" if feed["closed"] else "calm" if feed["calm"] else f"{self._speed(f'feed {name}')} rows/s"
        text = f"{name}: {feed['files']} files, {feed['rows']:,} rows, {state}"
        text += f", {feed['rejected']:,} rejected" if feed["rejected"] else ""
        return text + (f", {feed['late']:,} late" if feed["late"] else "")

    def _train_line(self, child: str, report: dict[str, Any]) -> str:
        auc = f", AUC {report['auc']:.4f} at step {report['checkpoint_step']}" if report.get("auc") is not None else ""
        speed = f", {self._speed(child)} rows/s" if report.get("state") == "training" else f", {report.get('state')}"
        return f"{report['version']}: step {report.get('steps') or 0:,}, {report.get('rows_trained') or 0:,} rows{speed}{auc}"

    def _measure(self, key: str, now_s: float, rows: int) -> None:
        if key not in self._marks:
            self._marks[key] = (now_s, rows)
            return
        then_s, before = self._marks[key]
        if now_s - then_s >= 1.0:
            self._speeds[key] = (rows - before) / (now_s - then_s)
            self._marks[key] = (now_s, rows)

    def _speed(self, key: str) -> str:
        return f"{self._speeds.get(key, 0.0):,.0f}"


class LineDisplay:
    """A line in ten seconds, for logs."""

    def __init__(self) -> None:
        self.state = State()
        self._next_s = time.monotonic() + LINE_S

    def report(self, child: str, report: dict[str, Any]) -> None:
        """Keep it."""
        self.state.take(child, report)

    def text(self, child: str, line: str) -> None:
        """Pass it on."""
        del child
        print(line, file=sys.stderr, flush=True)

    def tick(self) -> None:
        """A line, if it is time."""
        if time.monotonic() >= self._next_s:
            self._next_s = time.monotonic() + LINE_S
            self._say()

    def close(self) -> None:
        """The last line."""
        self._say()

    def _say(self) -> None:
        if lines := self.state.lines():
            logger.info(" | ".join(lines))


class TerminalDisplay:
    """A picture that is drawn again and again at the bottom of the terminal."""

    def __init__(self) -> None:
        from rich.console import Console
        from rich.live import Live

        self.state = State()
        self._live = Live(console=Console(stderr=True), auto_refresh=False, transient=False)
        self._live.start()
        self._next_s = 0.0

    def report(self, child: str, report: dict[str, Any]) -> None:
        """Keep it."""
        self.state.take(child, report)

    def text(self, child: str, line: str) -> None:
        """Above the picture."""
        from rich.text import Text

        del child
        self._live.console.print(Text.from_ansi(line))

    def tick(self) -> None:
        """Draw it, if it is time."""
        if time.monotonic() >= self._next_s:
            self._next_s = time.monotonic() + REDRAW_S
            self._draw()

    def close(self) -> None:
        """Leave the last picture."""
        self._draw()
        self._live.stop()

    def _draw(self) -> None:
        from rich.text import Text

        self._live.update(Text("\n".join(self.state.lines())), refresh=True)


class SelfReporter:
    """``Reporter`` of a role that runs by itself: shows its own reports."""

    def __init__(self, display: Display, name: str) -> None:
        self._display, self._name = display, name

    def report(self, report: dict[str, Any]) -> None:
        """Show it."""
        self._display.report(self._name, report)
        self._display.tick()


def make_display() -> Display:
    """The one that fits where stderr goes."""
    return TerminalDisplay() if sys.stderr.isatty() else LineDisplay()
