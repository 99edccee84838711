"""What `emubus --version` prints."""

from __future__ import annotations

from pathlib import Path

from .. import __version__


def version() -> str:
    """The version, and whether this installation has the functions in C (`codec/native.py`).

    Looks for their file: imports are slow.
    """
    folder = Path(__file__).parents[1] / "amqp" / "wire"
    is_native = any(folder.glob("_delivery_loops.*.so"))
    return f"emubus {__version__} ({'functions in C' if is_native else 'pure Python'})"
