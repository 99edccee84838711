"""emubus in a container, for tests: pip install ./examples/testcontainers-python. It starts no SQL Server.

with EmubusContainer(config="Config.json") as container:
    client = ServiceBusClient.from_connection_string(container.get_connection_string())
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from testcontainers.core.container import DockerContainer
from testcontainers.core.wait_strategies import HttpWaitStrategy

__all__ = ["EmubusContainer"]

AMQP_PORT = 5672
HTTP_PORT = 5300
CONFIG_FILE = "/ServiceBus_Emulator/ConfigFiles/Config.json"
START_S_MAX = 60


class EmubusContainer(DockerContainer):
    """A container of the emulator's image, in memory; `start()` returns when AMQP and HTTP answer.

    `config` has the entities: the path of a Config.json, or what such a file says, as an object; without it there is
    one queue, `queue.1`. `profile` chooses whose limits apply: standard, premium, ms-emulator or relaxed. With
    `sas_key` tokens are verified, and it is the root key. FileNotFoundError if `config` names no file. Further
    settings are variables of the image: `with_env("EMUBUS_…", …)`.
    """

    def __init__(
        self,
        image: str = "emubus:latest",
        *,
        config: Path | str | Mapping[str, Any] | None = None,
        profile: str = "standard",
        sas_key: str | None = None,
        **options: Any,  # those of DockerContainer
    ) -> None:
        super().__init__(image, **options)
        self._key = "SAS_KEY_VALUE" if sas_key is None else sas_key
        self.with_exposed_ports(AMQP_PORT, HTTP_PORT)
        self.with_envs(EMUBUS_DURABILITY="none", EMUBUS_PROFILE=profile)
        if sas_key is not None:
            self.with_envs(EMUBUS_AUTH="sas", EMUBUS_SAS_KEY=sas_key)
        if isinstance(config, Mapping):
            self.with_env("EMUBUS_CONFIG_JSON", json.dumps(config))
        elif config is not None:
            path = Path(config).resolve()
            if not path.is_file():  # the engine would make a folder of that name
                raise FileNotFoundError(f"the config of the container is {path}: there is no such file")
            self.with_volume_mapping(str(path), CONFIG_FILE, "ro")
        healthy = HttpWaitStrategy(HTTP_PORT, "/health").for_status_code(200)
        self.waiting_for(healthy.with_startup_timeout(START_S_MAX).with_poll_interval(0.1))

    def get_connection_string(self) -> str:
        """The connection string, from outside of the container, for data and administration clients alike."""
        return (
            f"Endpoint=sb://{self.get_container_host_ip()}:{self.get_exposed_port(AMQP_PORT)};"
            f"SharedAccessKeyName=RootManageSharedAccessKey;SharedAccessKey={self._key};UseDevelopmentEmulator=true;"
        )

    def get_url(self) -> str:
        """The URL of the page, the REST interface and the control API, without a final slash."""
        return f"http://{self.get_container_host_ip()}:{self.get_exposed_port(HTTP_PORT)}"
