"""A page that is shown again and again: drawn in place on a terminal, else plain text, or one JSON object a line."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from headrace.cli.output import print_object, print_text

Page = tuple[dict[str, Any], str]
Show = Callable[[Page], None]


def watch(look: Callable[[], Page], interval_s: float, *, as_json: bool) -> None:
    """Show what ``look`` finds, every ``interval_s`` seconds from beginning to beginning, until Ctrl-C."""
    try:
        with _shower(as_json=as_json) as show:
            while True:
                began_s = time.monotonic()
                show(look())
                time.sleep(max(0.0, interval_s - (time.monotonic() - began_s)))
    except KeyboardInterrupt:
        return


@contextmanager
def _shower(*, as_json: bool) -> Iterator[Show]:
    if as_json:
        yield lambda page: print_object(page[0])
    elif not sys.stdout.isatty():
        yield lambda page: print_text(f"{time.strftime('%H:%M:%S')}\n{page[1]}")
    else:
        from rich.console import Console
        from rich.live import Live
        from rich.text import Text

        with Live(console=Console(), auto_refresh=False, screen=True) as live:
            yield lambda page: live.update(Text(page[1]), refresh=True)
