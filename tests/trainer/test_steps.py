"""Steps are a function of the log: the same for any arrival order, and never before they are proven."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest

from ingest.contracts import T_END
from trainer.contracts import PartitionPosition, Step
from trainer.steps import Buckets, after_batch, after_control, after_unreadable, check_order, next_step

EVERY = Buckets(10)
OFF = Buckets(None)
FRESH = PartitionPosition(0)


def used(position: PartitionPosition, bucket: int, number: int, rows: int = 4) -> PartitionPosition:
    return after_batch(position, Step(bucket, number), rows, 4, (position.next_offset, "d"))


def test_waits_until_every_partition_has_a_batch_or_a_proof() -> None:
    heads = [Step(3, 0), None]
    assert next_step(heads, [FRESH, FRESH], EVERY) == (None, (1,))
    assert next_step(heads, [FRESH, after_control(FRESH, 39, (0, ""))], EVERY) == (None, (1,))
    assert next_step(heads, [FRESH, after_control(FRESH, 40, (0, ""))], EVERY) == (Step(3, 0), ())
    assert next_step([Step(3, 0), Step(3, 0)], [FRESH, FRESH], EVERY) == (Step(3, 0), ())
    assert next_step([Step(3, 0), Step(4, 0)], [FRESH, FRESH], EVERY) == (Step(3, 0), ()), "a later bucket is a proof"


def test_short_batch_ends_its_bucket_in_its_partition_only() -> None:
    full, short = used(FRESH, 3, 0), used(FRESH, 3, 0, rows=3)
    assert next_step([Step(3, 1), None], [FRESH, full], EVERY) == (None, (1,))
    assert next_step([Step(3, 1), None], [FRESH, short], EVERY) == (Step(3, 1), ())
    assert next_step([Step(4, 0), None], [FRESH, short], EVERY) == (None, (1,)), "says nothing about the next bucket"


def test_one_bucket_for_all_time_ends_with_the_feed() -> None:
    assert OFF.end(0) == T_END
    heads = [Step(0, 7), None]
    assert next_step(heads, [FRESH, after_control(FRESH, T_END - 1, (0, ""))], OFF) == (None, (1,))
    assert next_step(heads, [FRESH, after_control(FRESH, T_END, (0, ""))], OFF) == (Step(0, 7), ())


def test_no_heads_no_step() -> None:
    assert next_step([None, None], [FRESH, FRESH], EVERY) == (None, ())


def test_negative_buckets() -> None:
    assert (EVERY.start(-1), EVERY.end(-1)) == (-10, 0)
    assert next_step([Step(-1, 0), None], [FRESH, after_control(FRESH, 0, (0, ""))], EVERY) == (Step(-1, 0), ())


def test_V_never_goes_back() -> None:
    assert after_control(after_control(FRESH, 50, (0, "")), 20, (1, "")).V == 50


@pytest.mark.parametrize(
    ("position", "step", "right"),
    [
        (FRESH, Step(5, 0), True),
        (FRESH, Step(5, 1), False),
        (used(FRESH, 5, 0), Step(5, 1), True),
        (used(FRESH, 5, 0), Step(5, 0), False),
        (used(FRESH, 5, 0), Step(5, 2), False),
        (used(FRESH, 5, 0), Step(4, 0), False),
        (used(FRESH, 5, 0), Step(6, 0), True),
        (used(FRESH, 5, 0, rows=1), Step(5, 1), False),
        (after_unreadable(used(FRESH, 5, 0), (1, "")), Step(5, 2), True),
        (after_unreadable(used(FRESH, 5, 0), (1, "")), Step(5, 1), True),
        (after_unreadable(used(FRESH, 5, 0), (1, "")), Step(5, 3), False),
        (after_unreadable(used(FRESH, 5, 0), (1, "")), Step(6, 1), True),
        (used(after_unreadable(used(FRESH, 5, 0), (1, "")), 5, 2), Step(5, 4), False),
    ],
)
def test_numbers_without_gaps(position: PartitionPosition, step: Step, right: bool) -> None:
    assert (check_order(position, step) is None) == right


@dataclass
class Case:
    """Per partition a stream of (step, rows) and V values."""

    streams: list[list[tuple[Step, int] | int]]

    @classmethod
    def random(cls, rng: np.random.Generator) -> Case:
        streams: list[list[tuple[Step, int] | int]] = []
        for _ in range(int(rng.integers(1, 4))):
            stream: list[tuple[Step, int] | int] = []
            for bucket in range(int(rng.integers(0, 5))):
                rows = int(rng.integers(0, 12))
                stream += [(Step(bucket, j), min(4, rows - 4 * j)) for j in range(-(-rows // 4))]
                if rng.random() < 0.5:
                    stream.append((bucket + 1) * 10)
            streams.append([*stream, T_END])
        return cls(streams)

    def oracle(self) -> list[tuple[Step, list[int]]]:
        """From the whole log at once."""
        parts: dict[Step, list[int]] = {}
        for partition, stream in enumerate(self.streams):
            for message in stream:
                if not isinstance(message, int):
                    parts.setdefault(message[0], []).append(partition)
        return sorted(parts.items())

    def run(self, rng: np.random.Generator) -> list[tuple[Step, list[int]]]:
        """With messages that arrive in a random order of the partitions."""
        positions = [FRESH] * len(self.streams)
        arrived: list[list[tuple[Step, int] | int]] = [[] for _ in self.streams]
        left = [list(stream) for stream in self.streams]
        steps = []
        while any(left):
            partition = int(rng.choice([p for p, stream in enumerate(left) if stream]))
            arrived[partition].append(left[partition].pop(0))
            while True:
                heads: list[Step | None] = []
                for p, stream in enumerate(arrived):
                    while stream and isinstance(stream[0], int):
                        positions[p] = after_control(positions[p], stream.pop(0), (0, ""))  # type: ignore[arg-type]
                    heads.append(stream[0][0] if stream else None)  # type: ignore[index]
                step, _ = next_step(heads, positions, EVERY)
                if step is None:
                    break
                took = [p for p, head in enumerate(heads) if head == step]
                for p in took:
                    positions[p] = used(positions[p], *step, rows=arrived[p].pop(0)[1])  # type: ignore[index]
                steps.append((step, took))
        return steps


@pytest.mark.parametrize("seed", range(200))
def test_any_arrival_order_gives_the_same_steps(seed: int) -> None:
    rng = np.random.default_rng(seed)
    case = Case.random(rng)
    assert case.run(rng) == case.run(rng) == case.oracle()
