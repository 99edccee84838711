"""CRC-32 as zlib defines it, by the instructions that processors have for it.

The journal's groups and closed stores carry it. zlib-ng takes a quarter of the time of zlib: 0.07 ms a megabyte instead
of 0.27, and for a message of 1 KB 0.2 us of the 10 that sending it takes (`bench/compare.py --cells send-part-w1000`).
Where there is no zlib-ng, zlib does the same.
"""

from __future__ import annotations

try:
    from zlib_ng.zlib_ng import crc32
except ImportError:
    from zlib import crc32

__all__ = ["crc32"]
