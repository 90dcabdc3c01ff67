"""``headrace run``: the only way to start a role."""

from __future__ import annotations

import os
import sys
import time
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from headrace.cli.app import Options, app
from headrace.cli.output import note, print_object
from headrace.cli.specs import Json

if TYPE_CHECKING:
    from headrace.running import Run


class RoleName(StrEnum):
    """What can be run."""

    ingest = "ingest"
    preprocess = "preprocess"
    train = "train"
    all = "all"


@app.command("run")
def run_role(
    context: typer.Context,
    role: Annotated[RoleName, typer.Argument(metavar="ROLE", help="ingest, preprocess, train, or all of them.")],
    until_idle: Annotated[bool, typer.Option("--until-idle", help="Stop when nothing more can be done.")] = False,
    until_end: Annotated[
        bool, typer.Option("--until-end", help="No more files will come: close the feeds, train the rest, stop.")
    ] = False,
    as_json: Json = False,
    only: Annotated[str | None, typer.Option(hidden=True)] = None,
    child: Annotated[int | None, typer.Option(hidden=True)] = None,
) -> None:
    """Run one role, or all of them.

    Until Ctrl-C (which drains; a second one stops at once), or as --until-idle or --until-end say.

    Example: headrace run all --until-end --json
    """
    if child is not None:
        from headrace.guard import die_with

        die_with(child)
    if until_idle and until_end:
        raise typer.BadParameter(
            "--until-idle and --until-end exclude each other: the second closes the feeds for ever"
        )
    began_s = time.monotonic()
    options: Options = context.obj
    code = _dispatch(
        _make_run(options, until_idle, until_end), role, only, is_child=child is not None, debug=options.debug
    )
    if child is not None:
        # All is closed and flushed; taking torch and its threads down in good order would cost a second.
        sys.stderr.flush()
        os._exit(code)
    if code == 0:
        _print_result(_make_run(options, until_idle, until_end), role, began_s, as_json=as_json)
    raise typer.Exit(code)


def _make_run(options: Options, until_idle: bool, until_end: bool) -> Run:
    from headrace.running import Run, since_from

    project = options.project()
    until = "idle" if until_idle else "end" if until_end else "forever"
    return Run(
        project=project,
        settings=options.settings(project),
        until=until,  # type: ignore[arg-type]
        since=since_from(os.environ),
        arguments=tuple(options.as_arguments()),
        log_level=options.log_level,
    )


def _dispatch(run: Run, role: RoleName, only: str | None, *, is_child: bool, debug: bool) -> int:
    from headrace import running
    from headrace.children import report_failure
    from headrace.progress import make_display
    from streams.errors import EXIT_WORK_FAILED, HeadraceError

    if role is RoleName.all:
        return running.run_all(run, make_display())
    if role is RoleName.train and only is None:
        return running.run_trainers(run)
    try:
        if only is not None:
            return running.run_trainer(run, only)
        return running.run_single(run, role.value, child=is_child)
    except HeadraceError as error:
        if is_child:
            report_failure(error)
        if is_child and error.exit_code != EXIT_WORK_FAILED and not debug:
            raise typer.Exit(error.exit_code) from None  # the supervisor says it, once
        raise


def _print_result(run: Run, role: RoleName, began_s: float, *, as_json: bool) -> None:
    from headrace.result import part_of, text_of
    from headrace.running import result_of

    result = part_of(result_of(run, began_s), role.value)
    print_object(result) if as_json else note(text_of(result))
