"""What every tier must do. A backend plugs in with ``class TestX(TierConformance)`` and a ``make_tier`` fixture."""

from __future__ import annotations

import threading
from collections.abc import Callable

from cache.contracts import Key, Tier

MakeTier = Callable[[int], Tier]


def key(n: int, topic: str = "t") -> Key:
    return Key(topic, n % 3, n)


class TierConformance:
    """``make_tier(max_bytes)`` gives an empty tier with that budget."""

    def test_gives_back_what_was_put(self, make_tier: MakeTier) -> None:
        tier = make_tier(1000)
        assert tier.get(key(1)) is None
        tier.put(key(1), b"one")
        tier.put(key(2), memoryview(b"two"))
        assert bytes(tier.get(key(1)) or b"") == b"one"
        assert bytes(tier.get(key(2)) or b"") == b"two"
        assert (tier.counters.hits, tier.counters.misses, tier.counters.errors) == (2, 1, 0)

    def test_keys_differ_in_each_part(self, make_tier: MakeTier) -> None:
        tier = make_tier(1000)
        keys = [Key("a", 0, 0), Key("b", 0, 0), Key("a", 1, 0), Key("a", 0, 1), Key("a", 0, 0, "f")]
        for n, one in enumerate(keys):
            tier.put(one, bytes([n]))
        assert [bytes(tier.get(one) or b"") for one in keys] == [bytes([n]) for n in range(5)]

    def test_stays_within_its_budget(self, make_tier: MakeTier) -> None:
        tier = make_tier(100)
        for n in range(50):
            tier.put(key(n), bytes(10))
            assert tier.counters.bytes <= 100
        assert tier.counters.evictions > 0
        assert tier.get(key(49)) is not None
        assert tier.get(key(0)) is None

    def test_a_value_above_the_budget_is_not_kept(self, make_tier: MakeTier) -> None:
        tier = make_tier(100)
        tier.put(key(1), bytes(50))
        tier.put(key(2), bytes(101))
        assert tier.get(key(2)) is None
        assert tier.get(key(1)) is not None

    def test_putting_again_replaces(self, make_tier: MakeTier) -> None:
        tier = make_tier(100)
        tier.put(key(1), bytes(60))
        tier.put(key(1), b"new")
        assert bytes(tier.get(key(1)) or b"") == b"new"
        assert tier.counters.entries == 1
        assert tier.counters.bytes == 3

    def test_nothing_is_kept_without_a_budget(self, make_tier: MakeTier) -> None:
        tier = make_tier(0)
        tier.put(key(1), b"x")
        assert tier.get(key(1)) is None

    def test_a_value_outlives_its_entry(self, make_tier: MakeTier) -> None:
        tier = make_tier(100)
        tier.put(key(1), b"a" * 100)
        value = tier.get(key(1))
        tier.put(key(2), b"b" * 100)
        tier.clear()
        assert value is not None
        assert bytes(value) == b"a" * 100

    def test_the_bytes_put_are_copied(self, make_tier: MakeTier) -> None:
        tier, source = make_tier(100), bytearray(b"abc")
        tier.put(key(1), memoryview(source))
        source[:] = b"xyz"
        assert bytes(tier.get(key(1)) or b"") == b"abc"

    def test_clear_and_close(self, make_tier: MakeTier) -> None:
        tier = make_tier(100)
        tier.put(key(1), b"x")
        tier.clear()
        assert tier.get(key(1)) is None
        assert (tier.counters.entries, tier.counters.bytes) == (0, 0)
        tier.close()
        tier.close()

    def test_threads(self, make_tier: MakeTier) -> None:
        tier = make_tier(500)
        wrong: list[object] = []

        def work(seed: int) -> None:
            for n in range(400):
                one = key((n * seed) % 37)
                value = tier.get(one)
                if value is not None and bytes(value) != str(one).encode():
                    wrong.append(value)
                tier.put(one, str(one).encode())

        threads = [threading.Thread(target=work, args=(seed,)) for seed in (1, 3, 5, 7)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not wrong
        assert tier.counters.bytes <= 500
