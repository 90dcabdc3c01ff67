"""``python -m benchmarks NAME [--json]``."""

from __future__ import annotations

import sys

from benchmarks.harness import main

sys.exit(main(sys.argv[1:]))
