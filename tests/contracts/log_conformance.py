"""What every implementation of ``streams.contracts.Log`` must do.

``class TestMyLog(*LOG_CONFORMANCE)`` with a fixture ``make_log``: a function that returns a new handle on *one and the
same log* at each call; the fixture closes them all. Nothing in the suite assumes offsets without gaps.
"""

from __future__ import annotations

from tests.contracts.log_groups import GroupConformance
from tests.contracts.log_reading import CompactionConformance, OffsetConformance, ReadingConformance
from tests.contracts.log_writing import TopicConformance, TransactionConformance

LOG_CONFORMANCE = (
    TopicConformance,
    TransactionConformance,
    ReadingConformance,
    OffsetConformance,
    CompactionConformance,
    GroupConformance,
)
