"""The tiers that there are, against the conformance suite."""

from __future__ import annotations

import pytest

from cache.memory import MemoryTier
from tests.contracts.tier_conformance import MakeTier, TierConformance


class TestMemoryTier(TierConformance):
    @pytest.fixture
    def make_tier(self) -> MakeTier:
        return MemoryTier
