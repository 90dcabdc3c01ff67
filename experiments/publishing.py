"""Plan, publish, retire: how the registry changes.

| step | does | if it dies after this step, then … |
|---|---|---|
| publish.1 | fences other publishers, reads the registry | nothing changed |
| publish.2 | creates every topic the feeds, views and versions need | empty topics, used by the next publish |
| publish.3 | one transaction with all registry records | all is published; groups of retired versions still exist |
| publish.4 | deletes groups of retired versions | done; a repeated publish does it again |
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeVar

from experiments import names
from experiments.experiment import Experiment
from experiments.feed import Feed
from experiments.fields import format_time
from experiments.registry import SPEC, Registry, experiment_record, feed_record
from experiments.view import Version, View, canonical, content_hash, view_of
from streams.contracts import Log, TopicPartition, TopicSpec
from streams.errors import Fenced, SchemaMismatch, UnknownOutcome, Usage
from streams.killpoints import reached
from streams.packed import read_control
from streams.tail import read_to_end

SPLIT_PARTITIONS = 4
ATTEMPTS = 20
OPERATIONAL = ("settle",)
"""Fields of a published feed that may change: they do not touch what its topics hold."""

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
    return content_hash({"experiment": content, "view": _identity(view.content())})


def plan(registry: Registry, experiments: Sequence[Experiment], feeds: Mapping[str, Feed]) -> list[Change]:
    """What publishing these experiments would change, feeds first. Reads only."""
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
    _refuse_twice(experiments)
    return _with_retries(log, lambda producer_log: _publish_once(producer_log, experiments, feeds, now_us))


def retire(log: Log, name: str, *, now_us: int) -> Version:
    """Retire the live version of an experiment: its workers stop, its groups go, its topics and checkpoints stay.

    Raises:
        Usage: there is none.
    """
    del now_us
    return _with_retries(log, lambda producer_log: _retire_once(producer_log, name))


def _with_retries(log: Log, once: Callable[[Log], R]) -> R:
    for attempt in range(ATTEMPTS):
        try:
            return once(log)
        except (Fenced, UnknownOutcome):
            if attempt == ATTEMPTS - 1:
                raise
    raise AssertionError("unreachable")


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
        retired: list[Version] = []
        for experiment, change in zip(experiments, [c for c in changes if c.kind == "experiment"], strict=True):
            versions = registry.versions_of(experiment.experiment)
            if change.action == "unchanged":
                done.append(Published(change, versions[change.number - 1]))
                continue
            view = view_of(experiment, feeds)
            _create(log, view_topics(view))
            version, warnings = _new_version(log, experiment, view, change.number, now_us)
            _create(log, version_topics(version))
            retired += [v for v in versions if v.state == "live"]
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
    for version in retired:
        _delete_groups(log, version)
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
    finally:
        producer.close()
    _delete_groups(log, live)
    return dataclasses.replace(live, state="retired")


def _delete_groups(log: Log, version: Version) -> None:
    log.delete_group(names.featurize_group(version.name, version.number))
    log.delete_group(names.train_group(version.name, version.number))


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


def _identity(content: object) -> object:
    """Content without the operational fields of feeds."""
    if isinstance(content, dict):
        return {key: _identity(value) for key, value in content.items() if key not in OPERATIONAL}
    return content


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


def _refuse_twice(experiments: Sequence[Experiment]) -> None:
    seen: set[str] = set()
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
    warnings: list[str] = []
    if any(begins.values()):
        warnings.append(_gone(log, partitions, begins))
    version = Version(
        experiment=experiment,
        view=view,
        number=number,
        state="live",
        hash=version_hash(experiment, view),
        start=tuple(begins[tp] for tp in partitions),
        start_time_us=_start_time(log, experiment, view, partitions),
        published_us=now_us,
    )
    return version, warnings


def _start_time(log: Log, experiment: Experiment, view: View, partitions: Sequence[TopicPartition]) -> int | None:
    """``latest`` or a time → event time at the start of a bucket; ``None``: from the first stored row."""
    if experiment.start == "earliest":
        return None
    moment = experiment.start if isinstance(experiment.start, int) else _newest_frontier(log, partitions)
    every = view.sample.cuts.every
    return moment if every is None else -(-moment // every) * every


def _newest_frontier(log: Log, partitions: Sequence[TopicPartition]) -> int:
    newest = -(2**62)
    for tp in partitions:
        for record in read_to_end(log, tp.topic, tp.partition):
            found = read_control(record)
            newest = max(newest, found[1]) if found else newest
    return newest


def _gone(log: Log, partitions: Sequence[TopicPartition], begins: Mapping[TopicPartition, int]) -> str:
    times = []
    for tp in partitions:
        record = next(iter(read_to_end(log, tp.topic, tp.partition, begins[tp])), None)
        text = (record.header("hr.times") or b"").decode() if record else ""
        times += [int(text.partition(":")[0])] if text else []
    since = format_time(min(times)) if times else "later"
    return f"rows before {since} are no longer stored; the version starts there"


def _hints(version: Version) -> list[str]:
    sample = version.view.sample
    if sample.cuts.every is not None:
        return []
    return [
        f"feed {sample.feed}: cuts.every is off, so nothing bounds how far partitions drift apart in time; fine if the key "
        f"({', '.join(sample.key)}) spreads evenly. `headrace status` shows the skew that was seen"
    ]
