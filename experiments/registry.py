"""The registry: what is published, in a compacted topic, so that running workers see it at once.

One record a name, key ``feed/<name>`` or ``experiment/<name>``; the value is canonical JSON. An experiment's record holds all
its versions with everything they need (the feeds too), so that a version means the same for ever.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from experiments import names
from experiments.experiment import Experiment
from experiments.feed import Feed
from experiments.view import Version, View, canonical, view_of
from streams.contracts import Log, Record, TopicSpec
from streams.errors import Broken
from streams.packed import place
from streams.tail import Follower

LAYOUT = 1
SPEC = TopicSpec(names.REGISTRY, partitions=1, compacted=True)


class Registry:
    """A view of what is published. ``refresh`` reads what is new; nothing blocks."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self._follower: Follower | None = None
        self._versions: dict[str, list[Version]] = {}
        self.feeds: dict[str, Feed] = {}

    def refresh(self) -> bool:
        """Read new records; whether anything changed. A log without a registry is an empty one.

        Raises:
            Broken: a record that this version of headrace did not write.
        """
        if self._follower is None:
            if self._log.topic(names.REGISTRY) is None:
                return False
            self._follower = Follower(self._log, names.REGISTRY)
        records = self._follower.new()
        for record in records:
            self._take(record)
        return bool(records)

    @property
    def versions(self) -> list[Version]:
        """All versions, by name and number."""
        return [version for _, versions in sorted(self._versions.items()) for version in versions]

    def versions_of(self, name: str) -> list[Version]:
        """Versions of one experiment, oldest first."""
        return list(self._versions.get(name, ()))

    def live(self) -> list[Version]:
        """Live versions, by name."""
        return [version for version in self.versions if version.state == "live"]

    def views(self) -> list[View]:
        """Distinct views of live versions, by name."""
        return list({view.name: view for view in sorted((v.view for v in self.live()), key=lambda v: v.name)}.values())

    def _take(self, record: Record) -> None:
        try:
            kind, _, name = (record.key or b"").decode().partition("/")
            if kind not in ("feed", "experiment") or not name:
                raise ValueError(f"the key {record.key!r}")
            if record.value is None:
                self.feeds.pop(name, None) if kind == "feed" else self._versions.pop(name, None)
                return
            body = json.loads(bytes(record.value))
            if body["layout"] != LAYOUT:
                raise ValueError(f"layout {body['layout']}")
            if kind == "feed":
                self.feeds[name] = Feed.model_validate(body["feed"])
            else:
                self._versions[name] = [version_from(item) for item in body["versions"]]
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise Broken(
                expected=f"a registry record of layout {LAYOUT}",
                got=str(error).replace("\n", " ")[:300],
                where=place(record),
                do="It was written by another version of headrace; use that one, or a new project folder.",
            ) from error


def feed_record(feed: Feed) -> tuple[bytes, bytes]:
    """Key and value of a feed."""
    return f"feed/{feed.feed}".encode(), _encoded({"layout": LAYOUT, "feed": canonical(feed)})


def experiment_record(versions: list[Version]) -> tuple[bytes, bytes]:
    """Key and value of an experiment with all its versions."""
    body = {"layout": LAYOUT, "versions": [version_content(version) for version in versions]}
    return f"experiment/{versions[0].name}".encode(), _encoded(body)


def version_content(version: Version) -> dict[str, Any]:
    """A version as JSON types."""
    return {
        "number": version.number,
        "state": version.state,
        "hash": version.hash,
        "experiment": canonical(version.experiment),
        "feeds": {feed.feed: canonical(feed) for feed in version.view.feeds},
        "view": version.view.name,
        "start": list(version.start),
        "start_time_us": version.start_time_us,
        "published_us": version.published_us,
    }


def version_from(body: Mapping[str, Any]) -> Version:
    """The reverse of ``version_content``. Raises ``ValueError`` or ``KeyError``."""
    experiment = Experiment.model_validate(body["experiment"])
    feeds = {name: Feed.model_validate(feed) for name, feed in body["feeds"].items()}
    return Version(
        experiment=experiment,
        view=view_of(experiment, feeds),
        number=int(body["number"]),
        state=str(body["state"]),
        hash=str(body["hash"]),
        start=tuple(int(offset) for offset in body["start"]),
        start_time_us=None if body["start_time_us"] is None else int(body["start_time_us"]),
        published_us=int(body["published_us"]),
    )


def _encoded(body: dict[str, Any]) -> bytes:
    return json.dumps(body, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()
