"""What tiers must do beyond ``tier_conformance``, of some kinds: those whose store can fail, and those that keep strict order.

A tier plugs in by inheriting the class and by its fixtures: ``make_tier(max_bytes) -> Tier`` as in ``tier_conformance``, and for
``TierFailing`` also ``broken(tier)``, which breaks the store under an open tier.
"""

from __future__ import annotations

from collections.abc import Callable

from cache.contracts import Key, Tier
from tests.contracts.tier_conformance import MakeTier

BreakTier = Callable[[Tier], None]
ROOM = 1 << 20


def key(offset: int) -> Key:
    return Key("topic", 0, offset)


class TierFailing:
    """An error is counted, nothing is raised, the tier behaves as empty."""

    def test_a_broken_store_is_an_empty_one(self, make_tier: MakeTier, broken: BreakTier) -> None:
        tier = make_tier(ROOM)
        tier.put(key(1), b"x")
        broken(tier)
        assert tier.get(key(1)) is None
        tier.put(key(2), b"y")
        assert tier.get(key(2)) is None
        assert tier.counters.errors >= 1
        tier.clear()
        tier.close()


class TierOrder:
    """The least recently used goes first, and only as many as are in the way."""

    def test_reading_makes_young(self, make_tier: MakeTier) -> None:
        tier = make_tier(300)
        for offset in (1, 2, 3):
            tier.put(key(offset), b"x" * 100)
        tier.get(key(1))
        tier.put(key(4), b"x" * 100)
        assert [offset for offset in (1, 2, 3, 4) if tier.get(key(offset)) is not None] == [1, 3, 4]

    def test_one_large_value_drives_out_as_many_as_it_needs(self, make_tier: MakeTier) -> None:
        tier = make_tier(1000)
        for offset in range(10):
            tier.put(key(offset), b"x" * 100)
        tier.put(key(10), b"x" * 250)
        assert [offset for offset in range(11) if tier.get(key(offset)) is not None] == [3, 4, 5, 6, 7, 8, 9, 10]
        assert tier.counters.evictions == 3

    def test_a_value_as_large_as_the_budget_is_kept(self, make_tier: MakeTier) -> None:
        tier = make_tier(1000)
        tier.put(key(1), b"x" * 1000)
        assert tier.get(key(1)) == b"x" * 1000

    def test_replacing_drives_out_nobody(self, make_tier: MakeTier) -> None:
        tier = make_tier(1000)
        tier.put(key(1), b"stays")
        for size in [500, 10, 900, 1, 700] * 20:
            tier.put(key(2), b"x" * size)
        assert tier.get(key(1)) == b"stays"
        assert (tier.counters.entries, tier.counters.bytes, tier.counters.evictions) == (2, 705, 0)
