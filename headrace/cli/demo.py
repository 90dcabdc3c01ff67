"""``headrace demo``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from headrace.cli.app import Options, app
from headrace.cli.output import show
from headrace.cli.specs import CacheUrl, Json, LogUrl, Source


@app.command()
def demo(
    context: typer.Context,
    directory: Annotated[
        Path | None, typer.Argument(metavar="[DIR]", help="New folder. Default: a temporary one.")
    ] = None,
    example: Annotated[str, typer.Option(metavar="NAME", help="movielens or shop.")] = "movielens",
    source: Source = None,
    log: LogUrl = None,
    cache: CacheUrl = None,
    as_json: Json = False,
) -> None:
    """Run the whole chain on real data.

    Files → log → join → features → model; then it shows how well the model predicts.

    Example: headrace demo /tmp/demo
    """
    from headrace.demo import demo_text, run_demo, scores_of, this_command
    from headrace.examples.places import Places

    options: Options = context.obj
    result = run_demo(directory, example, Places(source, log, cache), options.settings, options.as_arguments())
    show(result, demo_text(result, scores_of(result), this_command()), as_json=as_json)
