"""Commands about spec files: ``init``, ``schema``, ``validate``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headrace.cli.app import Options, app
from headrace.cli.output import print_object, show

if TYPE_CHECKING:
    from experiments.experiment import Experiment
    from experiments.feed import Feed
    from headrace.project import Project

Json = Annotated[bool, typer.Option("--json", help="One JSON object on stdout.")]
Offline = Annotated[bool, typer.Option("--offline", help="Do not ask the file systems of the feeds.")]
Source = Annotated[
    str | None, typer.Option(metavar="URL", help="Put the files of the example there: hdfs://HOST:PORT/new/folder.")
]
LogUrl = Annotated[str | None, typer.Option(metavar="URL", help="The log lies on Kafka: kafka://HOST:PORT.")]
CacheUrl = Annotated[str | None, typer.Option(metavar="URL", help="Trainers share a Redis: redis://HOST:PORT/0.")]
DEFAULT_EXAMPLE = "shop"


@app.command()
def init(
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="New or empty folder.")],
    example: Annotated[str, typer.Option(metavar="NAME", help="shop or movielens.")] = DEFAULT_EXAMPLE,
    source: Source = None,
    log: LogUrl = None,
    cache: CacheUrl = None,
    as_json: Json = False,
) -> None:
    """Make a project folder with an example.

    Example: headrace init shop && cd shop && headrace validate
    """
    from headrace.examples import write_project
    from headrace.examples.places import Places

    write_project(directory, example, Places(source, log, cache))
    lines = [
        f"{directory} is ready, with the example {example}.",
        f"  cd {directory}",
        "  headrace validate                         # check feeds and experiments",
        "  headrace publish experiments/*.yaml       # make them live",
        "  headrace run all --until-end              # files → model",
    ]
    show({"directory": str(directory.absolute()), "example": example}, "\n".join(lines), as_json=as_json)


@app.command()
def schema(
    kind: Annotated[str, typer.Argument(metavar="feed|experiment", help="Which kind of file.")] = "experiment",
    as_json: Json = False,
) -> None:
    """Print the JSON Schema of spec files.

    Example: headrace schema feed > feed.schema.json
    """
    from experiments.schema import MODELS, schema_of

    if kind not in MODELS:
        raise typer.BadParameter(f"expected feed or experiment, got {kind!r}")
    del as_json  # it is JSON anyway
    print_object(schema_of(kind))


@app.command()
def validate(
    context: typer.Context,
    files: Annotated[
        list[Path] | None, typer.Argument(metavar="[FILES]", help="Default: all of feeds/ and experiments/.")
    ] = None,
    offline: Offline = False,
    as_json: Json = False,
) -> None:
    """Check settings, feeds and experiments; and that HDFS and the like can be reached.

    Example: headrace validate experiments/ctr.yaml
    """
    options: Options = context.obj
    project = options.project()
    options.settings(project)
    feeds, experiments = load_specs(project, files)
    require_feeds(feeds, offline=offline)
    text = "\n".join(
        [f"{len(feeds)} feeds and {len(experiments)} experiments are valid: "]
        + [f"  feed        {name}" for name in feeds]
        + [f"  experiment  {name}" for name in experiments]
    )
    value: dict[str, Any] = {"valid": True, "feeds": sorted(feeds), "experiments": sorted(experiments)}
    show(value, text, as_json=as_json)


def load_specs(project: Project, files: list[Path] | None) -> tuple[dict[str, Feed], dict[str, Experiment]]:
    """All feeds of the project, and the experiments in ``files`` (default: all). Feed files among ``files`` count as feeds.

    Raises:
        SpecError: all problems of all files.
    """
    from experiments.documents import read_document
    from experiments.errors import Problem, SpecError
    from experiments.loading import load_experiment, load_feed, load_feeds

    problems: list[Problem] = []
    feeds = load_feeds(project.feeds)
    experiments: dict[str, Experiment] = {}
    if files is None:
        files = sorted([*project.experiments.glob("*.yaml"), *project.experiments.glob("*.yml")])
    for file in files:
        try:
            if file.absolute().parent == project.feeds or "feed" in read_document(file).data:
                feed = load_feed(file)
                feeds.setdefault(feed.feed, feed)
            else:
                experiment = load_experiment(file, feeds)
                experiments[_fresh(experiment.experiment, experiments, file)] = experiment
        except SpecError as error:
            problems += error.problems
    if problems:
        raise SpecError(problems)
    return feeds, experiments


def require_feeds(feeds: dict[str, Feed], *, offline: bool) -> None:
    """Ask the file systems of remote feeds, unless told not to. Raises ``Unreachable``."""
    from headrace.reach import require_reachable

    if not offline:
        require_reachable(feeds.values())


def _fresh(name: str, known: dict[str, Experiment], file: Path) -> str:
    from experiments.errors import Problem, SpecError

    if name in known:
        raise SpecError([Problem(str(file), 1, "experiment", "a name of its own", f"{name!r}, which another file has")])
    return name
