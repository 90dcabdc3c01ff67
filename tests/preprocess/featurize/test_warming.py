"""After ``warm`` nothing is compiled any more, whatever the experiment. In a process of its own, where nothing is compiled."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

SCRIPT = """
from numba.core.dispatcher import Dispatcher
from preprocess.featurize.warming import warm
from preprocess.kernels import featurize as kernels
from preprocess.featurize.batch import Featurizer
from preprocess.featurize.cutting import Cut
from preprocess.featurize.graph import compile_plan
from tests.preprocess.featurize.samples import ALL_TYPES, batch_of, cells, wide
import random

def compiled():
    found = {name: len(one.signatures) for name, one in vars(kernels).items() if isinstance(one, Dispatcher)}
    return found

warm()
before = compiled()
assert before["unique_ids"] and before["jagged"], before
experiment, view = wide()
featurizer = Featurizer(compile_plan(experiment, view))
for seed in range(8):
    rng = random.Random(seed)
    columns = {name: cells(kind, 9, rng) for name, kind in ALL_TYPES.items()}
    featurizer.batches(batch_of(view, columns, list(range(9))), [Cut(0, 0, 0, 5), Cut(0, 1, 5, 9)])
after = compiled()
assert after == before, {name: (before[name], after[name]) for name in after if after[name] != before[name]}
"""


def test_nothing_is_compiled_after_warming() -> None:
    root = Path(__file__).parents[3]
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT], cwd=root, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
