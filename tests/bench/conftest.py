"""The benchmarks are scripts that import each other by their bare names."""

import sys

from ..building import ROOT

sys.path.append(str(ROOT / "bench"))
