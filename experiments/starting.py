"""Where a new version starts: resolved once, at publish, from what the log holds then."""

from __future__ import annotations

from collections.abc import Mapping

from experiments import names
from experiments.experiment import Experiment
from experiments.fields import format_time
from experiments.view import View
from streams.contracts import Log, TopicPartition
from streams.packed import TIMES, read_control
from streams.tail import read_to_end

END_OF_TIME = 2**62
"""W and V of a closed feed; minus this: of one of which nothing is known yet."""


def start_time(log: Log, experiment: Experiment, view: View) -> int | None:
    """``latest`` or a time → event time at the start of a bucket; ``None``: from the first stored row."""
    if experiment.start == "earliest":
        return None
    moment = experiment.start if isinstance(experiment.start, int) else _newest_frontier(log, view)
    every = view.sample.cuts.every
    if moment is None or every is None:
        return moment
    return -(-moment // every) * every


def _newest_frontier(log: Log, view: View) -> int | None:
    """The newest V of the view; before its first one, the newest W of its sample feed; ``None`` if nothing was read yet."""
    for topic, name in ((names.joined(view.name), "V"), (names.raw(view.sample.feed), "W")):
        found = [_last_control(log, TopicPartition(topic, p), name) for p in range(view.partitions)]
        if known := [value for value in found if value is not None]:
            return max(known)
    return None


def _last_control(log: Log, tp: TopicPartition, name: str) -> int | None:
    """The newest control value of a partition, looked for from its end, twice as far back each time."""
    begin, end, span = log.begin_offsets([tp])[tp], log.end_offsets([tp])[tp], 64
    while True:
        start = max(begin, end - span)
        found = [read_control(record) for record in read_to_end(log, tp.topic, tp.partition, start)]
        values = [value for kind, value in filter(None, found) if kind == name and value > -END_OF_TIME]
        if values or start == begin:
            return max(values, default=None)
        span *= 2


def gone(log: Log, view: View, begins: Mapping[TopicPartition, int]) -> list[str]:
    """A warning if rows were removed before the first that the version can see: of the view, or of its feed if it is new."""
    if not any(log.end_offsets(begins).values()):
        raw = [TopicPartition(names.raw(view.sample.feed), p) for p in range(view.partitions)]
        begins = log.begin_offsets(raw)
    if not any(begins.values()):
        return []
    times = []
    for tp, begin in begins.items():
        stored = (record.header(TIMES) for record in read_to_end(log, tp.topic, tp.partition, begin))
        first = next((text for text in stored if text), None)
        times += [int(first.decode().partition(":")[0])] if first else []
    since = format_time(min(times)) if times else "what comes next"
    return [f"rows before {since} are no longer stored; the version starts there"]
