"""The CA of the servers under test, and Java that trusts it."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Final

import pytest

from emubus.tls import FOLDER, ca_file, make_authority

PASSWORD: Final = "changeit"


@pytest.fixture(scope="module")
def tls_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the CA of all servers of a module."""
    folder = tmp_path_factory.mktemp("tls")
    (folder / FOLDER).mkdir()
    make_authority(folder / FOLDER)
    return folder


@pytest.fixture(scope="module")
def trust(tls_folder: Path) -> list[str]:
    """The options with which Java trusts the servers' CA."""
    store = tls_folder / "trust.p12"
    command = ("keytool", "-importcert", "-noprompt", "-file", str(ca_file(tls_folder)), "-keystore", str(store))
    subprocess.run((*command, "-storetype", "PKCS12", "-storepass", PASSWORD), check=True, capture_output=True)
    return [f"-Djavax.net.ssl.trustStore={store}", f"-Djavax.net.ssl.trustStorePassword={PASSWORD}"]
