"""The role preprocess: a join worker for each live view, a featurizer for each live version."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from experiments import names
from headrace.endings import Ending
from headrace.lags import preprocess_stages
from headrace.look import Look
from headrace.roles.loop import Made, Parts, Seldom, Workers
from preprocess.featurize.worker import FeaturizeWorker
from preprocess.join.worker import JoinWorker


class PreprocessRole:
    """See the module."""

    name = "preprocess"

    def __init__(self, parts: Parts, look: Look, ending: Ending, workers: Workers) -> None:
        self._parts, self._look, self._ending, self._workers = parts, look, ending, workers
        self._config = parts.settings.preprocess_config()
        self._known: set[tuple[str, int]] = set()
        self._live: set[tuple[str, int]] = set()
        self._stages = Seldom(lambda: preprocess_stages(look))

    def wanted(self) -> Mapping[tuple[str, str], Made]:
        """Joins first: what they put out is featurized in the same round."""
        log, clock, config = self._parts.log, self._parts.clock, self._config
        made: dict[tuple[str, str], Made] = {}
        for view in self._parts.registry.views():
            made["join", view.name] = Made(view, lambda view=view: JoinWorker(log, view, config, clock=clock))  # type: ignore[misc]
        live = self._parts.registry.live()
        for version in live:
            make = lambda version=version: FeaturizeWorker(log, version, config, clock=clock)  # noqa: E731
            made["featurize", version.label] = Made(version.hash, make)
        self._live = {(version.name, version.number) for version in live}
        return made

    def upkeep(self) -> None:
        """Remove the groups of retired versions: a worker may have committed after they were removed."""
        for name, number in self._known - self._live:
            self._parts.log.delete_group(names.featurize_group(name, number))
        self._known = self._live

    def over(self) -> bool:
        """As the ending says."""
        return self._ending.preprocess_over()

    def wait(self, timeout_s: float) -> None:
        """For the log."""
        self._parts.log.wait(timeout_s)

    def waiting(self) -> str:
        """Nothing published, or what the workers say."""
        reports = self._workers.reports()
        if not reports:
            return "for an experiment to be published: headrace publish experiments/NAME.yaml"
        reasons = {" ".join(key): report.get("waiting") for key, report in reports.items() if report.get("waiting")}
        return "; ".join(f"{reason} ({name})" for name, reason in reasons.items())

    def drain(self) -> None:
        """What is not committed is made again from the log."""

    def report(self) -> dict[str, Any]:
        """Rows put out, by worker; how far each stage is over all processes; whether there is work, and what keeps it."""
        rows: dict[str, dict[str, int]] = {"join": {}, "featurize": {}}
        reports = self._workers.reports()
        for (kind, name), report in reports.items():
            partitions = report["partitions"]
            assert isinstance(partitions, dict)
            rows[kind][name] = sum(part["rows"] for part in partitions.values())
        stages = self._stages()
        return {
            "rows": rows,
            "stages": stages,
            "work": sum(
                stage["messages"].get(p, 0)
                for stage in stages
                for p in reports.get((stage["stage"], stage["name"]), {}).get("partitions", ())  # type: ignore[attr-defined]
            ),
            "waits": any(report["waiting"] for report in reports.values()),
        }
