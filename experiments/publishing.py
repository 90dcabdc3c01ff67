"""Plan, publish, retire: how the registry changes.

| step | does | if it dies after this step, then … |
|---|---|---|
| publish.1 | fences other publishers, reads the registry | nothing changed |
| publish.2 | creates every topic the feeds, views and versions need | empty topics, used by the next publish |
| publish.3 | one transaction with all registry records | all is published; groups of retired versions still exist |
| publish.4 | deletes groups of retired versions, whoever retired them | done |

Every publisher does step 4 for all retired versions, so the next one makes up for one that died before it. Groups of joins
stay: a view that is used again goes on where its join stopped.
"""

from __future__ import annotations

import dataclasses
import json
import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeVar

from experiments import names
from experiments.experiment import Experiment
from experiments.feed import Feed
from experiments.registry import SPEC, Registry, experiment_record, feed_record
from experiments.starting import END_OF_TIME, gone, start_time
from experiments.view import OPERATIONAL, Version, View, canonical, content_hash, view_of
from streams.contracts import Log, TopicPartition, TopicSpec
from streams.errors import Fenced, SchemaMismatch, UnknownOutcome, Usage
from streams.killpoints import reached

SPLIT_PARTITIONS = 4
ATTEMPTS = 30
PAUSE_S = 0.01
MAX_PAUSE_S = 0.5

R = TypeVar("R")
Action = Literal["new", "unchanged", "changed", "retired"]


@dataclass(frozen=True, slots=True)
class Change:
    """What publishing would do to one feed or experiment.

    Args:
        kind, name: ``feed`` or ``experiment``.
        action: new, unchanged, or changed (an experiment: the new version starts cold and the live one is retired).
        number: version that will be live; 0 for a feed.
        retires: version that is retired by it; 0 if none.
        differences: (path, old, new) as JSON texts; old or new is empty where there is none.
    """

    kind: Literal["feed", "experiment"]
    name: str
    action: Action
    number: int
    retires: int
    differences: tuple[tuple[str, str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Published:
    """What was done."""

    change: Change
    version: Version | None
    warnings: tuple[str, ...] = ()


def version_hash(experiment: Experiment, view: View) -> str:
    """Identity of a version: the experiment's content and its view's (types of feeds included)."""
    content = canonical(experiment)
    content.pop("experiment")
    return content_hash({"experiment": content, "view": view.content()})


def plan(registry: Registry, experiments: Sequence[Experiment], feeds: Mapping[str, Feed]) -> list[Change]:
    """What publishing these experiments would change, feeds first. Reads only.

    Raises:
        SchemaMismatch: a feed was published with other content.
        Usage: an experiment twice, or one with the name of a feed (they would share their dead letters).
    """
    _refuse_names(registry, experiments, feeds)
    changes = [_feed_change(registry, feed) for feed in _feeds_of(experiments, feeds)]
    return changes + [
        _experiment_change(registry, experiment, view_of(experiment, feeds)) for experiment in experiments
    ]


def publish(log: Log, experiments: Sequence[Experiment], feeds: Mapping[str, Feed], *, now_us: int) -> list[Published]:
    """Publish experiments with the feeds they need. The same content again changes nothing.

    Safe against other publishers: the later one fences the earlier, who reads again and retries.

    Raises:
        SchemaMismatch: a feed was published with other content; its topics hold rows of that.
    """
    return _with_retries(lambda: _publish_once(log, experiments, feeds, now_us))


def retire(log: Log, name: str, *, now_us: int) -> Version:
    """Retire the live version of an experiment: its workers stop, its groups go, its topics and checkpoints stay.

    Raises:
        Usage: there is none.
    """
    del now_us
    return _with_retries(lambda: _retire_once(log, name))


def _with_retries(once: Callable[[], R]) -> R:
    """Publishers fence each other; random pauses, doubling, let one of them through."""
    for attempt in range(ATTEMPTS - 1):
        try:
            return once()
        except (Fenced, UnknownOutcome):
            time.sleep(random.uniform(0, min(MAX_PAUSE_S, PAUSE_S * 2**attempt)))
    return once()


def _publish_once(
    log: Log, experiments: Sequence[Experiment], feeds: Mapping[str, Feed], now_us: int
) -> list[Published]:
    # Step 1
    log.create_topic(SPEC)
    producer = log.producer("registry")
    try:
        registry = Registry(log)
        registry.refresh()
        changes = plan(registry, experiments, feeds)
        reached("publish.1")
        # Step 2
        used = _feeds_of(experiments, feeds)
        for feed in used:
            _create(log, feed_topics(feed))
        done = [Published(change, None) for change in changes if change.kind == "feed"]
        records = [feed_record(feed) for feed in used if _stored_differs(registry, feed)]
        for experiment, change in zip(experiments, [c for c in changes if c.kind == "experiment"], strict=True):
            versions = registry.versions_of(experiment.experiment)
            if change.action == "unchanged":
                done.append(Published(change, versions[change.number - 1]))
                continue
            view = view_of(experiment, feeds)
            _create(log, view_topics(view))
            version, warnings = _new_version(log, experiment, view, change.number, now_us)
            _create(log, version_topics(version))
            kept = [dataclasses.replace(v, state="retired") if v.state == "live" else v for v in versions]
            records.append(experiment_record([*kept, version]))
            done.append(Published(change, version, (*warnings, *_hints(version))))
        reached("publish.2")
        # Step 3
        if records:
            producer.begin()
            for key, value in records:
                producer.send(names.REGISTRY, 0, value, key=key)
            producer.commit()
        reached("publish.3")
    finally:
        producer.close()
    # Step 4
    _delete_retired_groups(log)
    reached("publish.4")
    return done


def _retire_once(log: Log, name: str) -> Version:
    log.create_topic(SPEC)
    producer = log.producer("registry")
    try:
        registry = Registry(log)
        registry.refresh()
        versions = registry.versions_of(name)
        live = next((version for version in versions if version.state == "live"), None)
        if live is None:
            known = ", ".join(sorted({version.name for version in registry.live()})) or "none"
            got = f"{name!r}, of which no version is live" if versions else f"{name!r}, which was never published"
            raise Usage(expected="a live experiment", got=got, where="retire", do=f"Live are: {known}.")
        kept = [dataclasses.replace(v, state="retired") if v.state == "live" else v for v in versions]
        key, value = experiment_record(kept)
        producer.begin()
        producer.send(names.REGISTRY, 0, value, key=key)
        producer.commit()
        reached("publish.3")
    finally:
        producer.close()
    _delete_retired_groups(log)
    return dataclasses.replace(live, state="retired")


def _delete_retired_groups(log: Log) -> None:
    registry = Registry(log)
    registry.refresh()
    existing = set(log.groups())
    for version in registry.versions:
        groups = (
            names.featurize_group(version.name, version.number),
            names.train_group(version.name, version.number),
        )
        for group in existing.intersection(groups if version.state == "retired" else ()):
            log.delete_group(group)


def feed_topics(feed: Feed) -> Iterator[TopicSpec]:
    """Topics of a feed."""
    yield TopicSpec(names.splits(feed.feed), SPLIT_PARTITIONS)
    for name in (names.floor, names.progress, names.late, names.dead_letters):
        yield TopicSpec(name(feed.feed), 1)
    yield TopicSpec(names.raw(feed.feed), feed.partitions)


def view_topics(view: View) -> Iterator[TopicSpec]:
    """Topics of a view."""
    yield TopicSpec(names.joined(view.name), view.partitions)
    yield TopicSpec(names.dead_letters(view.name), 1)
    yield TopicSpec(names.side(view.name), 1)


def version_topics(version: Version) -> Iterator[TopicSpec]:
    """Topics of a version of an experiment."""
    yield TopicSpec(names.exp(version.name, version.number), version.view.partitions)
    yield TopicSpec(names.dead_letters(version.name), 1)


def _create(log: Log, specs: Iterator[TopicSpec]) -> None:
    for spec in specs:
        log.create_topic(spec)


def _feeds_of(experiments: Sequence[Experiment], feeds: Mapping[str, Feed]) -> list[Feed]:
    used = {feed.feed: feed for experiment in experiments for feed in view_of(experiment, feeds).feeds}
    return [used[name] for name in sorted(used)]


def _stored_differs(registry: Registry, feed: Feed) -> bool:
    return registry.feeds.get(feed.feed) != feed


def _feed_change(registry: Registry, feed: Feed) -> Change:
    old = registry.feeds.get(feed.feed)
    if old is None:
        return Change("feed", feed.feed, "new", 0, 0)
    differences = differences_of(canonical(old), canonical(feed))
    if fixed := [item for item in differences if item[0].partition(".")[0] not in OPERATIONAL]:
        raise SchemaMismatch(
            expected=f"feed {feed.feed!r} as it was published",
            got="; ".join(f"{path}: {was or 'nothing'} → {now or 'nothing'}" for path, was, now in fixed[:5]),
            where=f"feed {feed.feed}",
            do="Its topics hold rows of the published form. Take the change back, or give the feed a new name.",
        )
    return Change("feed", feed.feed, "changed" if differences else "unchanged", 0, 0, differences)


def _experiment_change(registry: Registry, experiment: Experiment, view: View) -> Change:
    name = experiment.experiment
    versions = registry.versions_of(name)
    live = next((version for version in versions if version.state == "live"), None)
    if live is not None and live.hash == version_hash(experiment, view):
        return Change("experiment", name, "unchanged", live.number, 0)
    if not versions:
        return Change("experiment", name, "new", 1, 0)
    newest = live or versions[-1]
    differences = differences_of(_whole(newest.experiment, newest.view), _whole(experiment, view))
    return Change("experiment", name, "changed", len(versions) + 1, live.number if live else 0, differences)


def _whole(experiment: Experiment, view: View) -> dict[str, object]:
    feeds = {f"feed {feed.feed}": canonical(feed) for feed in view.feeds}
    return canonical(experiment) | {"feeds": feeds}


def differences_of(old: object, new: object, path: str = "") -> tuple[tuple[str, str, str], ...]:
    """(path, old, new) of everything that differs between two JSON values; texts, empty where there is nothing."""
    if old == new:
        return ()
    if isinstance(old, dict) and isinstance(new, dict):
        found: list[tuple[str, str, str]] = []
        for key in sorted(old.keys() | new.keys()):
            found += differences_of(old.get(key), new.get(key), f"{path}.{key}" if path else key)
        return tuple(found)
    return ((path, _text(old), _text(new)),)


def _text(value: object) -> str:
    return "" if value is None else json.dumps(value, ensure_ascii=False, sort_keys=True)


def _refuse_names(registry: Registry, experiments: Sequence[Experiment], feeds: Mapping[str, Feed]) -> None:
    seen: set[str] = set()
    used = {feed.feed for feed in _feeds_of(experiments, feeds)}
    taken = sorted(used & {v.name for v in registry.versions}) + sorted(
        {experiment.experiment for experiment in experiments} & (used | registry.feeds.keys())
    )
    if taken:
        raise Usage(
            expected="a feed and an experiment to have different names",
            got=f"{taken[0]!r} for both",
            where="publish",
            do="Rename one of them.",
        )
    for experiment in experiments:
        if experiment.experiment in seen:
            raise Usage(
                expected="each experiment once",
                got=f"{experiment.experiment!r} in two files",
                where="publish",
                do="Name one of them, or rename one.",
            )
        seen.add(experiment.experiment)


def _new_version(log: Log, experiment: Experiment, view: View, number: int, now_us: int) -> tuple[Version, list[str]]:
    partitions = [TopicPartition(names.joined(view.name), p) for p in range(view.partitions)]
    begins = log.begin_offsets(partitions)
    warnings = gone(log, view, begins)
    start_time_us = start_time(log, experiment, view)
    if start_time_us is not None and start_time_us >= END_OF_TIME:
        warnings.append(f"start: latest, but feed {view.sample.feed} is closed: there will be nothing to train")
    version = Version(
        experiment=experiment,
        view=view,
        number=number,
        state="live",
        hash=version_hash(experiment, view),
        start=tuple(begins[tp] for tp in partitions),
        start_time_us=start_time_us,
        published_us=now_us,
    )
    return version, warnings


def _hints(version: Version) -> list[str]:
    sample, hints = version.view.sample, []
    if sample.cuts.every is None:
        hints.append(
            f"feed {sample.feed}: cuts.every is off, so partitions advance by rows, not by time. Fine if files are in order of "
            "time; `headrace status` shows the skew that was seen"
        )
    labels = {label.column for label in version.experiment.labels.values()}
    for name, feature in version.experiment.features.items():
        if seen := labels.intersection(feature.columns):
            hints.append(
                f"features.{name} reads {sorted(seen)[0]}, from which the label is made: the model sees the answer"
            )
    return hints
