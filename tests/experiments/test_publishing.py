"""Plan, publish, retire on the embedded log."""

from __future__ import annotations

from pathlib import Path

import pytest

from experiments import names
from experiments.experiment import Experiment
from experiments.feed import Feed
from experiments.publishing import Published, plan, publish, retire
from experiments.registry import Registry
from experiments.view import Version
from streams.contracts import Log, Position, TopicPartition
from streams.errors import SchemaMismatch, Usage
from streams.packed import control
from streams.tail import read_to_end
from tests.experiments import specs

MINUTE_US = 60_000_000
Feeds = dict[str, Feed]


def registry_of(log: Log) -> Registry:
    registry = Registry(log)
    registry.refresh()
    return registry


def published(log: Log, feeds: Feeds, *experiments: Experiment, now_us: int = 5) -> list[Published]:
    return publish(log, experiments, feeds, now_us=now_us)


def version(done: list[Published]) -> Version:
    found = done[-1].version
    assert found is not None
    return found


def changed(base: Experiment, seed: int = 1, **fields: object) -> Experiment:
    return base.model_copy(update={"train": base.train.model_copy(update={"seed": seed}), **fields})


def states(log: Log) -> list[tuple[str, int, str]]:
    return [(v.name, v.number, v.state) for v in registry_of(log).versions]


def records(log: Log) -> int:
    return sum(1 for _ in read_to_end(log, names.REGISTRY, 0))


def test_first_time(log: Log, feeds: Feeds, liked: Experiment) -> None:
    assert [(c.kind, c.name, c.action, c.number) for c in plan(Registry(log), [liked], feeds)] == [
        ("feed", "items", "new", 0), ("feed", "ratings", "new", 0), ("experiment", "liked", "new", 1),
    ]  # fmt: skip
    assert log.topic(names.REGISTRY) is None, "plan changes nothing"
    done = published(log, feeds, liked)
    assert [item.change.action for item in done] == ["new", "new", "new"]
    (live,) = registry_of(log).live()
    assert live == version(done)
    assert (live.number, live.start, live.start_time_us, live.published_us) == (1, (0, 0, 0, 0), None, 5)
    assert live.experiment == liked
    assert registry_of(log).feeds == feeds
    assert registry_of(log).views() == [live.view]


def test_topics_and_their_partitions(log: Log, feeds: Feeds, liked: Experiment) -> None:
    feeds["ratings"] = feeds["ratings"].model_copy(update={"partitions": 2})
    view = version(published(log, feeds, liked)).view.name
    assert {topic.spec.name: topic.spec.partitions for topic in log.topics()} == {
        "registry": 1,
        "splits.ratings": 4, "floor.ratings": 1, "progress.ratings": 1, "late.ratings": 1, "dlq.ratings": 1, "raw.ratings": 2,
        "splits.items": 4, "floor.items": 1, "progress.items": 1, "late.items": 1, "dlq.items": 1, "raw.items": 4,
        f"joined.{view}": 2, f"dlq.{view}": 1, f"side.{view}": 1,
        "exp.liked.v1": 2, "dlq.liked": 1,
    }  # fmt: skip
    info = log.topic(names.REGISTRY)
    assert info is not None
    assert info.spec.compacted


def test_the_same_again_changes_nothing(log: Log, feeds: Feeds, liked: Experiment) -> None:
    first, count = version(published(log, feeds, liked)), records(log)
    again = published(log, feeds, liked, now_us=99)
    assert {item.change.action for item in again} == {"unchanged"}
    assert version(again) == first
    assert records(log) == count


def test_order_of_keys_and_defaults_written_out_are_the_same_content(log: Log, feeds: Feeds, tmp_path: Path) -> None:
    first = specs.experiment(specs.LIKED, tmp_path, feeds)
    lines = specs.LIKED.replace("model: lr", "model: {lr: {}}\nstart: earliest\ntables: {}").strip().splitlines()
    other = specs.experiment("\n".join([*lines[9:], *lines[:9]]), tmp_path, feeds)
    published(log, feeds, first)
    assert [item.change.action for item in published(log, feeds, other)][-1] == "unchanged"


def test_changed_content_is_the_next_version_and_retires_the_one_before(
    log: Log, feeds: Feeds, liked: Experiment
) -> None:
    published(log, feeds, liked)
    (change,) = [c for c in plan(registry_of(log), [changed(liked)], feeds) if c.kind == "experiment"]
    assert (change.action, change.number, change.retires) == ("changed", 2, 1)
    assert change.differences == (("train.seed", "", "1"),)
    published(log, feeds, changed(liked))
    assert states(log) == [("liked", 1, "retired"), ("liked", 2, "live")]
    assert log.topic("exp.liked.v2") is not None
    assert log.topic("exp.liked.v1") is not None, "topics stay"


def test_the_content_of_a_retired_version_is_a_new_version(log: Log, feeds: Feeds, liked: Experiment) -> None:
    """Its groups are gone, so going on with v1 would train its rows twice."""
    for experiment in (liked, changed(liked), liked):
        published(log, feeds, experiment)
    assert states(log) == [("liked", 1, "retired"), ("liked", 2, "retired"), ("liked", 3, "live")]
    versions = registry_of(log).versions
    assert versions[0].hash == versions[2].hash != versions[1].hash


def test_groups_of_retired_versions_are_deleted(log: Log, feeds: Feeds, liked: Experiment) -> None:
    view = version(published(log, feeds, liked)).view.name
    groups = ["feat.liked.v1", "train.liked.v1", "train.liked.v10", f"join.{view}", "read.ratings"]
    for group in groups:
        commit(log, group)
    published(log, feeds, changed(liked))
    assert log.groups() == sorted(groups[2:]), "only those of v1; a join goes on where it stopped"


def test_whoever_publishes_next_deletes_what_a_dead_publisher_left(log: Log, feeds: Feeds, liked: Experiment) -> None:
    published(log, feeds, liked)
    published(log, feeds, changed(liked))
    commit(log, "feat.liked.v1")
    published(log, feeds, changed(liked))
    assert log.groups() == []


def test_retire(log: Log, feeds: Feeds, liked: Experiment) -> None:
    published(log, feeds, liked)
    commit(log, "train.liked.v1")
    assert retire(log, "liked", now_us=7).state == "retired"
    assert states(log) == [("liked", 1, "retired")]
    assert registry_of(log).live() == registry_of(log).views() == []
    assert log.groups() == []
    with pytest.raises(Usage, match="of which no version is live"):
        retire(log, "liked", now_us=8)
    with pytest.raises(Usage, match="never published"):
        retire(log, "lked", now_us=8)
    assert version(published(log, feeds, liked)).number == 2


def test_a_published_feed_keeps_its_content(log: Log, feeds: Feeds, liked: Experiment) -> None:
    published(log, feeds, liked)
    other = feeds | {"ratings": feeds["ratings"].model_copy(update={"partitions": 8, "disorder": 5_000_000})}
    before = records(log)
    for run in (lambda: plan(registry_of(log), [liked], other), lambda: published(log, other, liked)):
        with pytest.raises(SchemaMismatch) as error:
            run()
        assert error.value.exit_code == 5
        assert "partitions" in error.value.got
        assert 'disorder: nothing → "5s"' in error.value.got
    assert records(log) == before


def test_settle_may_change_and_makes_no_new_version_or_view(log: Log, feeds: Feeds, liked: Experiment) -> None:
    first = version(published(log, feeds, liked))
    feeds["ratings"] = feeds["ratings"].model_copy(update={"settle": 9_000_000})
    done = published(log, feeds, liked, changed(liked, experiment="second"))
    assert [(i.change.name, i.change.action) for i in done] == [
        ("items", "unchanged"), ("ratings", "changed"), ("liked", "unchanged"), ("second", "new"),
    ]  # fmt: skip
    assert registry_of(log).feeds["ratings"].settle == 9_000_000
    assert version(done).view.name == first.view.name
    assert len(registry_of(log).views()) == 1


def test_two_experiments_share_a_view_where_the_join_is_the_same(log: Log, feeds: Feeds, liked: Experiment) -> None:
    other_label = {"liked": liked.labels["liked"].model_copy(update={"at_least": 5.0})}
    published(log, feeds, liked, changed(liked, experiment="b"), changed(liked, experiment="c", labels=other_label))
    assert len(registry_of(log).live()) == 3
    assert len(registry_of(log).views()) == 2


def test_a_column_or_look_up_named_settle_counts(log: Log, feeds: Feeds, liked: Experiment) -> None:
    first = version(published(log, feeds, liked))
    more = changed(liked, 0, lookups=liked.lookups | {"settle": liked.lookups["item"]})
    assert version(published(log, feeds, more)).view.name != first.view.name


def test_names_are_used_once(log: Log, feeds: Feeds, liked: Experiment) -> None:
    with pytest.raises(Usage, match="in two files"):
        published(log, feeds, liked, changed(liked))
    with pytest.raises(Usage, match="different names"):
        published(log, feeds, changed(liked, experiment="ratings"))
    published(log, feeds, changed(liked, experiment="items2"))
    renamed = feeds | {"items2": feeds["items"].model_copy(update={"feed": "items2"})}
    item = liked.lookups["item"].model_copy(update={"feed": "items2"})
    with pytest.raises(Usage, match="different names"):
        published(log, renamed, changed(liked, experiment="z", lookups={"item": item}))


def test_hints(log: Log, feeds: Feeds, liked: Experiment) -> None:
    assert published(log, feeds, liked)[-1].warnings == ()
    cuts = feeds["ratings"].cuts.model_copy(update={"every": None})
    other = {"off": feeds["ratings"].model_copy(update={"feed": "off", "cuts": cuts}), "items": feeds["items"]}
    (warning,) = published(log, other, changed(liked, experiment="b", sample="off"))[-1].warnings
    assert "cuts.every is off" in warning
    feature = liked.features["user"].model_copy(update={"id": None, "dense": "rating"})
    (warning,) = published(log, feeds, changed(liked, experiment="c", features={"r": feature}))[-1].warnings
    assert "features.r reads rating" in warning


class TestStart:
    def test_a_time_is_rounded_up_to_a_bucket(self, log: Log, feeds: Feeds, liked: Experiment) -> None:
        at = 28_000_000 * MINUTE_US
        for number, (start, expected) in enumerate([(at, at), (at + 1, at + MINUTE_US), (-1, 0)]):
            done = published(log, feeds, changed(liked, start=start, experiment=f"e{number}"))
            assert version(done).start_time_us == expected

    def test_without_buckets_a_time_is_itself(self, log: Log, feeds: Feeds, liked: Experiment) -> None:
        cuts = feeds["ratings"].cuts.model_copy(update={"every": None})
        feeds["ratings"] = feeds["ratings"].model_copy(update={"cuts": cuts})
        assert version(published(log, feeds, changed(liked, start=12_345))).start_time_us == 12_345

    def test_latest_is_the_newest_V(self, log: Log, feeds: Feeds, liked: Experiment) -> None:
        joined = names.joined(version(published(log, feeds, liked)).view.name)
        for number in range(300):
            write(log, joined, number % 4, control("V", number * MINUTE_US + 1))
        for _ in range(200):
            write(log, joined, 0, control("other", 2**61))
        done = published(log, feeds, changed(liked, start="latest", experiment="b"))
        assert version(done).start_time_us == 300 * MINUTE_US

    def test_latest_of_a_new_view_is_the_newest_W(self, log: Log, feeds: Feeds, liked: Experiment) -> None:
        published(log, feeds, liked)
        write(log, "raw.ratings", 2, control("W", 7 * MINUTE_US))
        label = {"liked": liked.labels["liked"].model_copy(update={"at_least": 5.0})}
        done = published(log, feeds, changed(liked, start="latest", experiment="b", labels=label))
        assert version(done).start_time_us == 7 * MINUTE_US

    @pytest.mark.parametrize("known", [[], [control("W", -(2**62))]])
    def test_latest_before_anything_is_the_first(
        self, log: Log, feeds: Feeds, liked: Experiment, known: list[object]
    ) -> None:
        published(log, feeds, liked)
        for item in known:
            write(log, "raw.ratings", 0, item)
        assert version(published(log, feeds, changed(liked, start="latest"))).start_time_us is None

    def test_latest_of_a_closed_feed_says_so(self, log: Log, feeds: Feeds, liked: Experiment) -> None:
        joined = names.joined(version(published(log, feeds, liked)).view.name)
        write(log, joined, 0, control("V", 2**62))
        done = published(log, feeds, changed(liked, start="latest"))
        assert any("is closed" in warning for warning in done[-1].warnings)
        found = version(done).start_time_us
        assert found is not None
        assert 2**62 <= found < 2**63

    def test_what_retention_removed(
        self, log: Log, feeds: Feeds, liked: Experiment, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        joined = names.joined(version(published(log, feeds, liked)).view.name)
        times = (("hr.times", b"1704067200000000:1704067260000000"),)
        for _ in range(3):
            write(log, joined, 1, (b"rows", times))
        first = [record.offset for record in read_to_end(log, joined, 1)][1]
        before = log.begin_offsets
        monkeypatch.setattr(
            log, "begin_offsets", lambda tps: before(tps) | {tp: first for tp in tps if tp == (joined, 1)}
        )
        done = published(log, feeds, changed(liked))
        assert version(done).start == (0, first, 0, 0)
        assert "rows before 2024-01-01T00:00:00Z are no longer stored" in done[-1].warnings[0]


def commit(log: Log, group: str) -> None:
    consumer = log.consumer(group)
    consumer.assign([TopicPartition(names.REGISTRY, 0)])
    consumer.commit({TopicPartition(names.REGISTRY, 0): Position(0)})
    consumer.close()


def write(log: Log, topic: str, partition: int, packed: object) -> None:
    value, headers = packed if isinstance(packed, tuple) else (packed.value, packed.headers)  # type: ignore[attr-defined]
    producer = log.producer("test")
    producer.begin()
    producer.send(topic, partition, value, headers=headers)
    producer.commit()
    producer.close()
