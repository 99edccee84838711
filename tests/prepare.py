"""Builds everything that tests need: `python -m tests.prepare`; `--report` prints what could not be had the last time.

Knows all builds by name. They don't depend on each other, nor on what the project's environment has installed, so they
run side by side, and beside that installation: most wait for downloads. What can't be built is left out of the tests,
with its reason; with CI=true it is an error, but for what Debian has no package of.
"""

from __future__ import annotations

import os
import sys

from .building import build_all
from .http.arm.sdks.prepare import builders as arm_builders
from .sdk.jms.prepare import builders as jms_builders
from .sdk.prepare import builders as sdk_builders
from .spark.prepare import builders as spark_builders
from .toolchains import checked, install_missing, may_be_missing, note_unavailable, table, unavailable
from .web.prepare import builders as web_builders


def main(arguments: list[str]) -> int:
    """The command line; the exit status."""
    if arguments == ["--report"]:
        reasons = unavailable()
        sys.stdout.write(f"Not run on this machine:\n{table(reasons)}\n" if reasons else "")
        return 0
    install_missing()
    # Spark first: it takes longest.
    reasons = build_all(
        checked({**spark_builders(), **sdk_builders(), **jms_builders(), **web_builders(), **arm_builders()})
    )
    note_unavailable(reasons)
    is_ci = os.environ.get("CI") == "true"
    wanting = [name for name in reasons if not may_be_missing(name)]
    if reasons and not (wanting and is_ci):
        sys.stdout.write(f"Not available on this machine, so their tests are not run:\n{table(reasons)}\n")
    return 1 if wanting and is_ci else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
