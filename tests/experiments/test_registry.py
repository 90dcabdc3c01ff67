from __future__ import annotations

from pathlib import Path

import pytest

from experiments import names
from experiments.experiment import Experiment
from experiments.feed import Feed
from experiments.publishing import publish, retire
from experiments.registry import SPEC, Registry, experiment_record, feed_record, version_content, version_from
from streams.contracts import Log
from streams.embedded.log import open_log
from streams.errors import Broken

Feeds = dict[str, Feed]


def test_without_a_topic_it_is_empty(log: Log) -> None:
    registry = Registry(log)
    assert registry.refresh() is False
    assert (registry.versions, registry.live(), registry.views(), registry.feeds) == ([], [], [], {})


def test_one_registry_follows_another_process_step_by_step(
    log: Log, feeds: Feeds, liked: Experiment, tmp_path: Path
) -> None:
    registry, other = Registry(log), open_log(tmp_path / "log")
    registry.refresh()
    publish(other, [liked], feeds, now_us=1)
    assert registry.refresh() is True
    assert [v.label for v in registry.live()] == ["liked v1"]
    assert registry.refresh() is False
    publish(other, [liked], feeds, now_us=2)
    assert registry.refresh() is False, "the same again writes nothing"
    retire(other, "liked", now_us=3)
    assert registry.refresh() is True
    assert registry.live() == []
    other.close()


def test_a_version_comes_back_as_it_was(log: Log, feeds: Feeds, liked: Experiment) -> None:
    version = publish(log, [liked], feeds, now_us=1)[-1].version
    assert version is not None
    again = version_from(version_content(version))
    assert again == version
    assert again.view.name == version.view.name
    assert experiment_record([again]) == experiment_record([version])


def test_it_outlives_compaction(log: Log, feeds: Feeds, liked: Experiment) -> None:
    for seed in range(30):
        train = liked.train.model_copy(update={"seed": seed})
        publish(log, [liked.model_copy(update={"train": train})], feeds, now_us=seed)
        log.maintain()
    registry = Registry(log)
    registry.refresh()
    assert [v.number for v in registry.versions] == list(range(1, 31))
    assert [v.number for v in registry.live()] == [30]


def test_a_tombstone_removes(log: Log, feeds: Feeds) -> None:
    registry = Registry(log)
    log.create_topic(SPEC)
    key, value = feed_record(feeds["items"])
    write(log, key, value)
    registry.refresh()
    assert list(registry.feeds) == ["items"]
    write(log, key, None)
    registry.refresh()
    assert registry.feeds == {}


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (b"feed/x", b"\xff"),
        (b"feed/x", b"[]"),
        (b"feed/x", b'{"layout": 2}'),
        (b"feed/x", b'{"layout": 1}'),
        (b"feed/x", b'{"layout": 1, "feed": {"feed": "x"}}'),
        (b"experiment/x", b'{"layout": 1, "versions": [{}]}'),
        (b"experiment/x", b'{"layout": 1, "versions": 3}'),
        (b"other/x", b'{"layout": 1}'),
        (b"feed", b"{}"),
        (b"\xff/x", b"{}"),
    ],
)
def test_a_record_of_something_else_is_named_with_its_place(log: Log, key: bytes, value: bytes) -> None:
    log.create_topic(SPEC)
    write(log, key, value)
    with pytest.raises(Broken) as error:
        Registry(log).refresh()
    assert "registry" in error.value.where
    assert "another version of headrace" in error.value.do


def write(log: Log, key: bytes, value: bytes | None) -> None:
    producer = log.producer("registry")
    producer.begin()
    producer.send(names.REGISTRY, 0, value, key=key)
    producer.commit()
    producer.close()
