"""``headrace demo``: the whole chain on real data, in one command, in at most 25 lines."""

from __future__ import annotations

import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from headrace import running
from headrace.cli.output import note
from headrace.examples.places import Places
from headrace.progress import Display, make_display
from headrace.project import Project
from headrace.settings import Settings
from streams.errors import HeadraceError

COLUMNS, HEIGHT = 60, 8
SIGNS = "*o+x#"


@dataclass(slots=True)
class Phases:
    """Names and seconds of what was done, in order."""

    done: list[tuple[str, float]] = field(default_factory=list)

    def run(self, name: str, work: Callable[[], Any]) -> Any:
        """Do it and take the time."""
        began_s = time.monotonic()
        value = work()
        self.done.append((name, time.monotonic() - began_s))
        return value


class MarkingDisplay:
    """A display that also notes when parts of the run were over."""

    def __init__(self, inner: Display) -> None:
        self._inner = inner
        self._began_s = time.monotonic()
        self.marks: dict[str, float] = {}

    def report(self, child: str, report: dict[str, Any]) -> None:
        """Note the first step of a trainer and the closing of the feeds."""
        feeds = report.get("feeds") or {}
        if feeds and all(feed["closed"] for feed in feeds.values()):
            self._mark("files read")
        if report.get("role") == "train" and report.get("steps"):
            self._mark("first step")
        self._inner.report(child, report)

    def text(self, child: str, line: str) -> None:
        """Pass it on."""
        self._inner.text(child, line)

    def tick(self) -> None:
        """Pass it on."""
        self._inner.tick()

    def close(self) -> None:
        """Pass it on."""
        self._inner.close()

    def _mark(self, name: str) -> None:
        self.marks.setdefault(name, time.monotonic() - self._began_s)


def run_demo(
    directory: Path | None,
    example: str,
    places: Places,
    load_settings: Callable[[Project], Settings],
    arguments: Sequence[str],
) -> dict[str, Any]:
    """Make the project, publish its experiments, run to the end. The result object, with ``directory`` and ``phases``.

    Raises:
        Usage: the folder is not empty. HeadraceError: the data could not be fetched, or a role failed.
    """
    from headrace.examples import write_project

    began_s = time.monotonic()
    folder = directory if directory is not None else Path(tempfile.mkdtemp(prefix="headrace-demo-")) / example
    note(f"headrace demo: {example} in {folder}")
    phases = Phases()
    phases.run("get data, write project", lambda: write_project(folder, example, places))
    project = Project(folder.absolute())
    settings = load_settings(project)
    phases.run("publish", lambda: _publish(project, settings))
    run = running.Run(project, settings, "end", {}, (*arguments, "--log-level", "warning"), "warning")
    display = MarkingDisplay(make_display())
    code = phases.run("run", lambda: running.run_all(run, display))
    if code:
        raise _stopped(project, code)
    result = running.result_of(run, began_s)
    total = phases.done.pop()[1]
    read = display.marks.get("files read", 0.0)
    first = display.marks.get("first step", 0.0)
    phases.done += [("start processes, to the first step", first), ("train to the end", total - first)]
    shown = [{"name": name, "seconds": round(seconds, 2)} for name, seconds in phases.done]
    return result | {"directory": str(project.root), "phases": shown, "files_read_after_s": round(read, 2)}


def demo_text(result: Mapping[str, Any], scores: Mapping[str, Sequence[float | None]], program: str) -> str:
    """At most 25 lines of 80 plain characters."""
    directory = result["directory"]
    phases = ", ".join(f"{phase['name']} {phase['seconds']:.1f} s" for phase in result["phases"])
    feeds = ", ".join(
        f"{name} {feed['used']:,} rows of {feed['files']} files" for name, feed in result["feeds"].items()
    )
    lines = [f"{result['seconds']:.1f} s: {phases}", f"read: {feeds}", ""]
    lines += curve(scores)
    for name, item in result["experiments"].items():
        lines.append(
            f"{name:<8} {item['rows_trained']:,} rows, {item['steps']:,} steps; AUC {_number(item['auc_second_half'])} (second"
            f" half); log loss {_number(item['log_loss_second_half'])} (base rate {_number(item['base_log_loss'])})"
        )
    lines += [
        "Each row was scored before it was trained, so these figures are honest.",
        f"project {directory}; in it: .headrace/checkpoints, .headrace/log",
        f"Next: cd {directory}",
        f"  {program} status",
        f"  edit experiments/deepfm.yaml; {program} publish experiments/deepfm.yaml; {program} run all",
        f"  {program} run all --until-end    (kill -9 it, run it again: the same model, bit for bit)",
    ]
    return "\n".join(lines)


def this_command() -> str:
    """How this program was called, so that the next commands can be pasted."""
    if shutil.which("headrace"):
        return "headrace"
    script = Path(sys.argv[0])
    return str(script.absolute()) if script.name == "headrace" else f"{sys.executable} -m headrace"


def scores_of(result: Mapping[str, Any]) -> dict[str, list[float | None]]:
    """AUC of each ``COLUMNS``-th part of the rows, by experiment, from the score files of the checkpoints."""
    from trainer.checkpoint.manifest import read_manifest
    from trainer.metrics import windows
    from trainer.scores import FOLDER, read_chunks

    found = {}
    for name, item in result["experiments"].items():
        if not item["checkpoint"] or not item["rows_trained"]:
            continue
        path = Path(item["checkpoint"])
        chunks = read_manifest(path).scores
        parts = read_chunks(path / FOLDER, chunks)
        size = max(1, -(-item["rows_trained"] // COLUMNS))
        found[name] = [window["auc"] for window in windows(parts, chunks[0].first, size)][:COLUMNS]
    return found


def curve(series: Mapping[str, Sequence[float | None]]) -> list[str]:
    """A chart in plain ASCII: one sign an experiment, a moving mean of five parts, AUC upwards, rows to the right."""
    smooth = {name: smoothed(values, 5) for name, values in series.items()}
    known = [value for values in smooth.values() for value in values if value is not None]
    if not known:
        return ["(no curve: too few rows)"]
    low, high = min(known), max(known)
    span = (high - low) or 1e-6
    grid = [[" "] * COLUMNS for _ in range(HEIGHT)]
    for sign, (_, values) in zip(SIGNS, smooth.items(), strict=False):
        for column, value in enumerate(values):
            if value is not None:
                grid[HEIGHT - 1 - round((value - low) / span * (HEIGHT - 1))][column] = sign
    legend = "  ".join(f"{sign} {name}" for sign, name in zip(SIGNS, smooth, strict=False))
    lines = [f"AUC, each row scored before it was trained, over the rows     {legend}"]
    for row, cells in enumerate(grid):
        lines.append(f"{high - span * row / (HEIGHT - 1):.3f} |{''.join(cells).rstrip()}")
    return [*lines, " " * 6 + "+" + "-" * COLUMNS]


def smoothed(values: Sequence[float | None], width: int) -> list[float | None]:
    """Mean of the known values among the last ``width``."""
    out: list[float | None] = []
    for end in range(1, len(values) + 1):
        known = [value for value in values[max(0, end - width) : end] if value is not None]
        out.append(sum(known) / len(known) if known else None)
    return out


def _publish(project: Project, settings: Settings) -> None:
    from experiments.loading import load_experiment, load_feeds
    from experiments.publishing import publish
    from headrace.project import open_project_log

    feeds = load_feeds(project.feeds)
    experiments = [load_experiment(path, feeds) for path in sorted(project.experiments.glob("*.yaml"))]
    log = open_project_log(project, settings, create=True)
    try:
        publish(log, experiments, feeds, now_us=time.time_ns() // 1000)
    finally:
        log.close()


def _number(value: float | None) -> str:
    return "undefined" if value is None else f"{value:.4f}"


def _stopped(project: Project, code: int) -> HeadraceError:
    error = HeadraceError(
        expected="a run to the end",
        got="a signal to stop",
        where=str(project.root),
        do=f"headrace -C {project.root} run all --until-end goes on from the last checkpoint.",
    )
    error.exit_code = code
    return error
