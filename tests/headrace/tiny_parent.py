"""A supervisor of one tiny child, to be killed by a test: argv is the child's folder."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from headrace.children import ChildSpec
from headrace.progress import LineDisplay
from headrace.stopping import Stop
from headrace.supervisor import Supervisor

folder = Path(sys.argv[1])
prefix = [sys.executable, str(Path(__file__).with_name("tiny_child.py"))]
supervisor = Supervisor(prefix, os.environ, lambda: [ChildSpec("tiny", (str(folder),))], LineDisplay(), forever=True)
stop = Stop()
stop.install()
supervisor.run(stop, on_stopping=lambda: None)
sys.exit(stop.exit_code)
