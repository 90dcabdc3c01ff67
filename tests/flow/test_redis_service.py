"""The whole chain with a real Redis behind the trainer's memory: the model is the same whatever Redis does."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest
import redis

from dev.daemon import dies_with_starter
from dev.redis_service import Redis
from tests.flow.project import Project, digests, learned
from tests.services import running

pytestmark = [pytest.mark.service, pytest.mark.timeout(280)]
SMALL_MEMORY = "cache: {{memory: 1MiB, redis: {{url: {url}}}}}"


def test_the_same_model_with_redis_on_flushed_and_killed(tmp_path: Path) -> None:
    without = Project.create(tmp_path / "off", "shop").run_all()
    with running(lambda: Redis(tmp_path / "redis", dies_with_starter)) as server:
        project = Project.create(tmp_path / "on", "shop", SMALL_MEMORY.format(url=server.url))
        result = project.run_all()
        assert digests(result) == digests(without)
        assert learned(result) == learned(without)
        plain = redis.Redis(port=server.port)
        assert any(b":sizes" in name for name in plain.scan_iter("headrace:*")), "it was used"
        done = threading.Event()

        def disturb() -> None:
            while not done.wait(0.3):
                plain.flushall()
            plain.close()

        flushing = threading.Thread(target=disturb)
        flushing.start()
        flushed = Project.create(tmp_path / "flushed", "shop", SMALL_MEMORY.format(url=server.url)).run_all()
        done.set()
        flushing.join()
        assert digests(flushed) == digests(without)

        found: dict[str, object] = {}
        killed = Project.create(tmp_path / "killed", "shop", SMALL_MEMORY.format(url=server.url))
        run = threading.Thread(target=lambda: found.update(killed.run_all()))
        run.start()
        for _ in range(4):
            time.sleep(1.0)
            server.kill()
            time.sleep(0.5)
            server.start()
        run.join(200)
        assert digests(found) == digests(without)
