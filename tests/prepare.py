"""Builds everything that tests need: `python -m tests.prepare`.

Knows all builds by name. They don't depend on each other, so they run side by side: most wait for downloads.
"""

from __future__ import annotations

import sys

from .building import build_all
from .sdk.prepare import builders as sdk_builders
from .spark.prepare import builders as spark_builders
from .web.prepare import builders as web_builders

if __name__ == "__main__":
    # Spark first: it takes longest.
    sys.exit(build_all({**spark_builders(), **sdk_builders(), **web_builders()}))
