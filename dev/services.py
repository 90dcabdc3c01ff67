"""``python -m dev.services up | down | status [kafka hdfs redis] [--json]``: the real services, for tests and for trying things."""

from __future__ import annotations

import argparse
import json
import shutil
import sys
from pathlib import Path

from dev.daemon import Daemon, lasting
from dev.errors import Missing, NotReady
from dev.hdfs_service import Hdfs
from dev.kafka_service import Kafka
from dev.programs import home, locked
from dev.redis_service import Redis

SERVICES: dict[str, type[Kafka] | type[Hdfs] | type[Redis]] = {"kafka": Kafka, "hdfs": Hdfs, "redis": Redis}
SETTINGS = {
    "kafka": 'log: {{kafka: {{bootstrap: "{address}"}}}}',
    "hdfs": "files: {{url: {url}/your/folder, …}}   # of a feed",
    "redis": "cache: {{redis: {{url: {url}}}}}",
}
EXAMPLES = """examples:
  python -m dev.services up                    all three; what is up already stays as it is
  python -m dev.services up kafka --json       {"kafka": "kafka://127.0.0.1:PORT"}
  python -m dev.services status
  python -m dev.services down                  stops what `up` started; --wipe also removes what it wrote
"""


def main(arguments: list[str] | None = None) -> int:
    """0 if all went well, 3 if a service or what it needs is missing."""
    parser = argparse.ArgumentParser(
        prog="python -m dev.services",
        description="Start, stop and show the real services: Kafka, HDFS and Redis, on the loopback.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("command", choices=("up", "down", "status"))
    parser.add_argument("services", nargs="*", metavar="kafka|hdfs|redis", help="which; default: all")
    parser.add_argument("--json", action="store_true", help="one object on stdout: name → URL, null where it is down")
    parser.add_argument(
        "--folder", type=Path, help="where they lie (default: in HEADRACE_SERVICES or the cache folder)"
    )
    parser.add_argument("--wipe", action="store_true", help="with down: remove what the services have written")
    given = parser.parse_args(arguments)
    if unknown := sorted(set(given.services) - set(SERVICES)):
        parser.error(f"no service {', '.join(unknown)}; there are {', '.join(SERVICES)}")
    names = [name for name in SERVICES if name in (given.services or SERVICES)]
    folder = given.folder or home() / "run"
    try:
        with locked(folder / "lock"):
            urls = COMMANDS[given.command](folder, names, given.wipe)
    except (Missing, NotReady) as error:
        print(f"dev.services: {error}", file=sys.stderr)
        return 3
    print(json.dumps(urls) if given.json else _lines(urls))
    return 0


def up(folder: Path, names: list[str], wipe: bool) -> dict[str, str | None]:
    """Start what is not up."""
    urls: dict[str, str | None] = {}
    for name in names:
        print(f"dev.services: {name} …", file=sys.stderr, flush=True)
        service = SERVICES[name](folder / name, lasting)
        service.start()
        urls[name] = service.url
    return urls


def down(folder: Path, names: list[str], wipe: bool) -> dict[str, str | None]:
    """Stop what ``up`` started here."""
    for name in names:
        for pid_file in sorted((folder / name).glob("*.pid"), key=lambda path: path.stem != "datanode"):
            Daemon(pid_file.stem, [], folder / name, lasting).stop()
        if wipe:
            shutil.rmtree(folder / name, ignore_errors=True)
    return dict.fromkeys(names)


def status(folder: Path, names: list[str], wipe: bool) -> dict[str, str | None]:
    """URL of those whose processes all run."""
    urls: dict[str, str | None] = dict.fromkeys(names)
    for name in names:
        running = [Daemon(file.stem, [], folder / name, lasting).pid for file in (folder / name).glob("*.pid")]
        if running and all(running):
            urls[name] = SERVICES[name](folder / name, lasting).url
    return urls


COMMANDS = {"up": up, "down": down, "status": status}


def _lines(urls: dict[str, str | None]) -> str:
    lines = []
    for name, url in urls.items():
        text = SETTINGS[name].format(url=url, address=url.partition("//")[2]) if url else "down"
        lines.append(f"{name:6} {text}")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
