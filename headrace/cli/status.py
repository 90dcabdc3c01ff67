"""``headrace status`` and ``headrace lag``: how far everything is. They work without a run, and beside one."""

from __future__ import annotations

from typing import Annotated

import typer

from headrace.cli.app import Options, app
from headrace.cli.output import show
from headrace.cli.publish import project_registry
from headrace.cli.specs import Json


@app.command()
def status(
    context: typer.Context,
    as_json: Json = False,
    watch: Annotated[bool, typer.Option("--watch", help="Show it again and again, until Ctrl-C.")] = False,
    interval: Annotated[
        float, typer.Option("--interval", min=0.1, metavar="S", help="Seconds between two looks of --watch.")
    ] = 2.0,
) -> None:
    """Show how far everything is.

    What is live, how many rows went where, who waits for what. Works without a run, and beside one.

    Example: headrace status --watch --interval 5
    """
    from headrace.cli.watching import Page
    from headrace.cli.watching import watch as watch_it
    from headrace.look import Look
    from headrace.status import status_object, status_text

    options: Options = context.obj
    project = options.project()
    with project_registry(options) as (log, registry):
        look = Look(log, registry)

        def page() -> Page:
            registry.refresh()
            found = status_object(look, project)
            return found, status_text(found, project)

        if watch:
            watch_it(page, interval, as_json=as_json)
            return
        found, text = page()
    show(found, text, as_json=as_json)


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
