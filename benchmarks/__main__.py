"""Run the benchmarks that are named, or all, one after the other: python -m benchmarks [encode score …]."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

SCRIPTS = {path.stem: path for path in sorted(Path(__file__).parent.glob("*.py")) if not path.stem.startswith("_")}


def main() -> int:
    names = sys.argv[1:] or list(SCRIPTS)
    unknown = [name for name in names if name not in SCRIPTS]
    if unknown:
        print(f"No benchmark {unknown[0]!r}. There are: {', '.join(SCRIPTS)}.", file=sys.stderr)
        return 2
    status = 0
    for name in names:
        print(f"== {name}", flush=True)
        status = max(status, subprocess.run([sys.executable, str(SCRIPTS[name])], check=False).returncode)
    return status


if __name__ == "__main__":
    sys.exit(main())
