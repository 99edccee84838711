"""Opens data folders as a server does, and checks them as `emubus check` does; for folders that may end a process.

Run as a program with a file that lists folders, it prints one line of JSON per folder:

    python -m tests.emubus.folders.opening LIST
"""

from __future__ import annotations

import hashlib
import json
import sys
from pathlib import Path
from typing import Any

from emubus.broker.admin.folder_view import CATALOG_FOLDER
from emubus.broker.admin.verify import check_data_folder
from emubus.broker.api import TABLES
from emubus.broker.model.catalog import CATALOG_TABLES, Catalog, CatalogError
from emubus.namespace import own_folder
from emubus.storage import Durability, Store, StoreError, open_store

STORES = 2
LAST = b"\xff" * 512
ROWS_MAX = 10**6


def rows_of(folder: Path) -> dict[str, str]:
    """Every row of every store, as a server reads it, by store and table (a hash). StoreError, CatalogError."""
    owned = own_folder(folder)
    opened: list[tuple[Path, Store]] = []
    try:
        for path in owned.prepare(STORES):
            tables = CATALOG_TABLES if path.name == CATALOG_FOLDER else TABLES
            opened.append((path, open_store(path, tables, Durability.FULL, create=False)))
        Catalog(opened[0][1])
        found: dict[str, str] = {}
        for path, store in opened:
            with store.view() as view:
                for table in CATALOG_TABLES if path.name == CATALOG_FOLDER else TABLES:
                    rows = view.scan(table, b"", LAST, ROWS_MAX)
                    found[f"{path.name} {table}"] = f"{len(rows)} {hashlib.sha256(repr(rows).encode()).hexdigest()}"
        return found
    finally:
        for _, store in opened:
            store.close()
        owned.release()


def contents(folder: Path) -> dict[str, str]:
    """Every file below a folder, as a hash."""
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def outcome(folder: Path) -> dict[str, Any]:
    """What the check finds and what a start makes of a folder."""
    before = contents(folder)
    problems = check_data_folder(folder).problems
    shown: dict[str, Any] = {"problems": problems, "check_wrote": contents(folder) != before}
    try:
        shown["rows"] = rows_of(folder)
    except (StoreError, CatalogError) as error:
        shown["refused"] = str(error)
    return shown


if __name__ == "__main__":
    for line in Path(sys.argv[1]).read_text().splitlines():
        sys.stdout.write(json.dumps(outcome(Path(line))) + "\n")
        sys.stdout.flush()
