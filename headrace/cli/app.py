"""The command line. Nothing heavy is imported here: ``headrace --help`` must be instant, so commands import what they need
inside."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from headrace.cli.output import report_error

if TYPE_CHECKING:
    from headrace.project import Project
    from headrace.settings import Settings

COMMANDS = ("demo", "specs", "publish", "run", "status", "checkpoint", "doctor")
"""Modules that add their commands to ``app``, in the order of ``--help``."""

app = typer.Typer(
    name="headrace",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="From log files to a model that learns continuously. Start with: headrace demo",
)


@dataclass(frozen=True, slots=True)
class Options:
    """What stands before the command."""

    directory: Path | None
    debug: bool
    log_level: str | None
    flags: tuple[str, ...]

    def project(self) -> Project:
        """The project folder; ``Usage`` if there is none."""
        from headrace.project import find_project

        return find_project(self.directory)

    def settings(self, project: Project | None) -> Settings:
        """Settings of the project; ``SpecError`` for what is wrong in them."""
        from headrace.settings import load_settings

        return load_settings(project.settings_file if project else None, flags=self.flags)

    def as_arguments(self) -> list[str]:
        """The same options, for a child process."""
        given = ["--debug"] if self.debug else []
        given += ["--log-level", self.log_level] if self.log_level else []
        for flag in self.flags:
            given += ["--set", flag]
        return given


def _version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        typer.echo(f"headrace {version('headrace')}")
        raise typer.Exit


@app.callback()
def options(
    context: typer.Context,
    directory: Annotated[
        Path | None, typer.Option("-C", "--directory", metavar="DIR", help="Project folder. Default: here or above.")
    ] = None,
    debug: Annotated[bool, typer.Option("--debug", help="Show where an error comes from.")] = False,
    log_level: Annotated[
        str | None, typer.Option("--log-level", metavar="LEVEL", help="debug, info, warning or error.")
    ] = None,
    flags: Annotated[
        list[str] | None, typer.Option("--set", metavar="NAME=VALUE", help="A setting, for example train.keep=5.")
    ] = None,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    """Options before the command."""
    del version
    if log_level is not None and log_level not in ("debug", "info", "warning", "error"):
        raise typer.BadParameter(f"expected debug, info, warning or error, got {log_level!r}")
    context.obj = Options(directory, debug, log_level, tuple(flags or ()))


def run() -> None:
    """Run the command line and exit with its code; the only place that maps errors to exit codes."""
    for name in COMMANDS:
        import_module(f"headrace.cli.{name}")
    as_json, debug = "--json" in sys.argv, "--debug" in sys.argv
    try:
        code = app(standalone_mode=False)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # so that the flush at exit does not fail too
        code = 1
    except (Exception, KeyboardInterrupt) as error:
        code = report_error(error, as_json=as_json, debug=debug)
    sys.exit(code if isinstance(code, int) else 0)
