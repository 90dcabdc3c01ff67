"""``headrace status`` and ``headrace lag``: how far everything is. They work without a run, and beside one."""

from __future__ import annotations

import time
from typing import Annotated

import typer

from headrace.cli.app import Options, app
from headrace.cli.output import print_object, show
from headrace.cli.publish import project_registry
from headrace.cli.specs import Json

WATCH_S = 2.0


@app.command()
def status(
    context: typer.Context,
    as_json: Json = False,
    watch: Annotated[bool, typer.Option("--watch", help="Show it again every two seconds, until Ctrl-C.")] = False,
) -> None:
    """Show how far everything is.

    What is live, how many rows went where, who waits for what. Works without a run, and beside one.

    Example: headrace status --json
    """
    from headrace.look import Look
    from headrace.status import status_object, status_text

    options: Options = context.obj
    project = options.project()
    with project_registry(options) as (log, registry):
        look = Look(log, registry)
        while True:
            found = status_object(look, project)
            if not watch:
                break
            print_object(found) if as_json else typer.echo(f"\033[2J\033[H{status_text(found, project)}")
            time.sleep(WATCH_S)
            registry.refresh()
    show(found, status_text(found, project), as_json=as_json)


@app.command()
def lag(context: typer.Context, as_json: Json = False) -> None:
    """Show how far each consumer is behind.

    Example: headrace lag
    """
    from headrace.look import Look
    from headrace.status import lag_object, lag_text

    with project_registry(context.obj) as (log, registry):
        found = lag_object(Look(log, registry))
    show(found, lag_text(found), as_json=as_json)
