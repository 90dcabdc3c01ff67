"""The example ``shop``: generated impressions with clicks that depend on user, item, price and position."""

from __future__ import annotations

import datetime
import math
import random
from pathlib import Path

SEED = 7
USERS, ITEMS, ROWS, FILES = 300, 120, 24_000, 6
CATEGORIES = ("shoes", "books", "games", "garden", "kitchen", "music")
TAGS = ("new", "sale", "gift", "small", "large")
START = datetime.datetime(2024, 5, 1, tzinfo=datetime.UTC)


def write_data(folder: Path) -> None:
    """Six files of impressions over two days, in order of time, and one of items."""
    rng = random.Random(SEED)
    items = [
        (i, rng.choice(CATEGORIES), round(math.exp(rng.gauss(3, 1)), 2), rng.sample(TAGS, rng.randint(0, 3)))
        for i in range(ITEMS)
    ]
    appeal = [rng.gauss(0, 0.7) for _ in range(ITEMS)]
    taste = [{category: rng.gauss(0, 1.2) for category in CATEGORIES} for _ in range(USERS)]
    lines = ["item_id,category,price,tags"] + [
        f"{i},{category},{price},{'|'.join(tags)}" for i, category, price, tags in items
    ]
    _write(folder / "items" / "items.csv", lines)
    per_file = ROWS // FILES
    for number in range(FILES):
        rows = ["request_id,time,user_id,item_id,position,clicked"]
        for request in range(number * per_file, (number + 1) * per_file):
            user, item, position = rng.randrange(USERS), min(int(rng.expovariate(1 / 30)), ITEMS - 1), rng.randint(1, 5)
            _, category, price, _ = items[item]
            score = -1.2 + appeal[item] + taste[user][category] - 0.3 * (position - 1) - 0.2 * math.log1p(price / 20)
            clicked = int(rng.random() < 1 / (1 + math.exp(-score)))
            time = START + datetime.timedelta(seconds=request * 172_800 / ROWS)
            rows.append(f"{request},{time.isoformat(timespec='milliseconds')},{user},{item},{position},{clicked}")
        _write(folder / "impressions" / f"part-{number:03}.csv", rows)


def _write(path: Path, lines: list[str]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
