"""A trainer in a process of its own, to be killed: ``python -m tests.trainer.victim FOLDER [FILE_SIZE_LIMIT]``.

Trains what the log in FOLDER holds, prints ``step <n>`` after each step, and at last the report as JSON.
"""

from __future__ import annotations

import json
import resource
import sys
from pathlib import Path

from streams.errors import HeadraceError
from tests.trainer.stream import World, version


def main(folder: Path, file_size_limit: int) -> int:
    world = World(folder, version(), settings={"ledger": str(folder / "ledger")})
    trainer = world.trainer(**world.ahead())
    try:
        session = trainer._open()
        assert session is not None
        if file_size_limit:
            resource.setrlimit(resource.RLIMIT_FSIZE, (file_size_limit, resource.RLIM_INFINITY))
        while session.train_one() or not session.drained:
            if session.due:
                session.checkpoint()
            print("step", session.step, flush=True)
        trainer.step()
        assert trainer.finished
    except HeadraceError as error:
        print(json.dumps(error.as_dict()), flush=True)
        return error.exit_code
    print(json.dumps(trainer.report()), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 0))
