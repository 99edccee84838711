"""`emubus ca`: print the path of the development CA and how to trust it in each SDK."""

from __future__ import annotations

import argparse
import sys

from ..config import OPTIONS_BY_NAME
from ..tls import TlsError, ca_file, make_authority, trust_lines
from . import EXIT_FAILED, EXIT_OK
from .options import add_option, read_option


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the data folder."""
    add_option(parser, OPTIONS_BY_NAME["data"])


def run(parsed: argparse.Namespace) -> int:
    """Make the CA if it does not exist, so that clients can be set up before the first start; the exit code."""
    path = ca_file(read_option(OPTIONS_BY_NAME["data"], {"data": parsed.data}))
    try:
        make_authority(path.parent)
    except TlsError as error:
        sys.stderr.write(f"emubus: error: {error}\n")
        return EXIT_FAILED
    sys.stdout.write("\n".join(trust_lines(path)) + "\n")
    return EXIT_OK
