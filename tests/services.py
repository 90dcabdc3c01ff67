"""Real services for tests: each session has its own, in its own folder, on its own ports, and they end with it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Protocol, TypeVar

import pytest

from dev.errors import Missing, NotReady


class Service(Protocol):
    def start(self) -> None: ...

    def go_on(self) -> None: ...

    def stop(self) -> None: ...


S = TypeVar("S", bound=Service)


@contextmanager
def running(make: Callable[[], S]) -> Iterator[S]:
    """A service that answers. Without it tests are skipped with the reason; they fail where ``HEADRACE_REQUIRE_SERVICES=1``."""
    try:
        service = make()
        service.start()
    except (Missing, NotReady) as error:
        if os.environ.get("HEADRACE_REQUIRE_SERVICES") == "1":
            pytest.fail(f"a service is required here: {error}")
        pytest.skip(str(error))
    try:
        yield service
    finally:
        service.go_on()
        service.stop()


def up(service: S) -> S:
    """The service, started again if a test has left it standing still or dead."""
    service.go_on()
    service.start()
    return service
