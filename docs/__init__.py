"""The documentation: pages for people, and `generate/`, which writes the pages that follow from tables of the code.

`python -m docs.generate.NAME`, in a checkout; tests compare each page with what its module would write.
"""

from pathlib import Path

DOCS = Path(__file__).parent
