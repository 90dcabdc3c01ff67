"""Metrics of a real run, scraped from it, against what the result object says."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
import urllib.request
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from headrace.measures import FAMILIES, samples
from tests.headrace.chain import EXPERIMENT, ROWS, USERS

DOCS = Path(__file__).parents[2] / "docs" / "operations.md"
Values = dict[tuple[str, tuple[str, ...]], float]


def headrace(project: Path, *args: object) -> dict[str, Any]:
    command = [sys.executable, "-m", "headrace", "-C", str(project), *map(str, args), "--json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def project_in(root: Path) -> Path:
    for folder in ("feeds", "experiments", "data", "users"):
        (root / folder).mkdir(parents=True)
    (root / "headrace.yaml").write_text("# nothing\n")
    (root / "feeds/rows.yaml").write_text(ROWS)
    (root / "feeds/users.yaml").write_text(USERS)
    (root / "experiments/ctr.yaml").write_text(EXPERIMENT.replace("NAME", "ctr").replace("100 steps", "10 steps"))
    lines = ["user,price,time,label", *(f"{i % 7},{i % 5},{1_600_000_000 + i},{i % 2}" for i in range(2000)), "x,1,2,3"]
    (root / "data/a.csv").write_text("\n".join(lines) + "\n")
    (root / "users/users.csv").write_text("user,age\n" + "".join(f"{i},{20 + i}\n" for i in range(7)))
    return root


def scrape(url: str) -> Values:
    with urllib.request.urlopen(f"{url}/metrics", timeout=10) as answer:
        text = answer.read().decode()
    return {
        (sample.name, tuple(value for _, value in sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def test_a_run_tells_what_it_does(tmp_path: Path) -> None:
    project = project_in(tmp_path / "p")
    headrace(project, "publish", project / "experiments/ctr.yaml")
    with (tmp_path / "err").open("w") as err:
        tree = subprocess.Popen([sys.executable, "-m", "headrace", "-C", str(project), "run", "all"], stderr=err)
    try:
        found: Values = {}
        end_s = time.monotonic() + 60
        while time.monotonic() < end_s:
            time.sleep(0.5)
            http = headrace(project, "status")["http"]
            if not http:
                continue
            found = scrape(http[0]["url"])
            if (
                found.get(("headrace_checkpoint_step", ("ctr.v1",)), 0) >= 10
                and ("headrace_train_auc", ("ctr.v1",)) in found
                and ("headrace_frontier_timestamp_seconds", ("feat.ctr.v1",)) in found  # lag is up to 5 s old
            ):
                break
        status = headrace(project, "status")
        with urllib.request.urlopen(f"{http[0]['url']}/readyz", timeout=10) as answer:
            assert answer.status == 200
        assert http[0]["role"] == "all"
        assert http[0]["pid"] == tree.pid
        tree.terminate()
        assert tree.wait(20) == 143
    finally:
        tree.kill()
        tree.wait()
    assert http[0]["url"] in (tmp_path / "err").read_text()
    assert headrace(project, "status")["http"] == []
    feed = status["feeds"]["rows"]
    assert found["headrace_feed_rows_total", ("rows", "used")] == feed["used"] == 2000
    (reason,) = feed["reasons"]
    assert found["headrace_feed_rejected_total", ("rows", reason)] == 1
    assert found["headrace_read_rows_total", ("rows",)] == 2001
    assert found["headrace_read_bytes_total", ("rows",)] > 0
    for group in ("lag_bytes", "lag_messages"):
        assert {labels[0] for name, labels in found if name == f"headrace_{group}"} >= set(status["lag"])
    assert found["headrace_frontier_timestamp_seconds", ("feat.ctr.v1",)] > 1_600_000_000
    assert found["headrace_feed_backpressure", ("rows",)] == 0
    assert 0 <= found["headrace_checkpoint_age_seconds", ("ctr.v1",)] < 120
    assert sum(value for (name, _), value in found.items() if name == "headrace_table_rows") > 0
    assert found["headrace_tables_bytes", ("ctr.v1",)] > 0
    assert found["headrace_train_steps_total", ("ctr.v1",)] >= 10
    assert {labels[0] for name, labels in found if name == "headrace_cache_misses_total"} == {"memory"}


def test_every_metric_is_documented_and_no_other() -> None:
    text = DOCS.read_text()
    rows = dict(re.findall(r"^\| `(headrace_\w+)` \|(?:[^|]*\|){2} ([^|]*) \|$", text, re.MULTILINE))
    suffix = {
        name: name + "_total" * (family.kind.__name__ == "CounterMetricFamily") for name, family in FAMILIES.items()
    }
    assert rows == {suffix[name]: family.meaning for name, family in FAMILIES.items()}


def test_a_trainer_that_waits_has_few_values() -> None:
    report = {"role": "train", "version": "a v1", "state": "waiting", "steps": 0, "rows_trained": 0, "auc": None}
    known = [sample for sample in samples("train a.v1", report, 0.0) if sample[2] is not None]
    assert ("headrace_train_state", ("a.v1", "waiting"), 1) in known
    assert all(name in FAMILIES for name, _, _ in known)


@pytest.mark.parametrize("name", FAMILIES)
def test_names_are_in_base_units(name: str) -> None:
    assert not name.endswith(("_ms", "_us", "_mb", "_kb", "_total", "_minutes"))
