"""An emubus in a container, for tests that use testcontainers: `pip install "emubus[testcontainers]"`.

Knows the image from outside: its ports, variables, the path of Config.json, and when it is ready. Does not know how
containers are started and removed: testcontainers does. The user of the container ends it, with `stop()` or `with`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

try:
    from testcontainers.core.container import DockerContainer
    from testcontainers.core.wait_strategies import HttpWaitStrategy
except ImportError as error:
    hint = "emubus.container needs testcontainers: pip install 'emubus[testcontainers]'"
    raise ImportError(f"{hint} ({error})") from error

from .broker.access import DEFAULT_KEY, DEFAULT_KEY_NAME
from .config import MOUNTED_CONFIG_FILE, Auth
from .kit.remote import RemoteEmubus

AMQP_PORT: Final = 5672
HTTP_PORT: Final = 5300
START_S_MAX: Final = 60
POLL_S: Final = 0.1


class EmubusContainer(DockerContainer):
    """A container of `image`, in memory, with the entities of the file `config`, or one queue named `queue.1`.

    `namespace` is the one of several in `config` that its verbs (`get_emubus`) are of; without it the first, which its
    connection strings always mean: another is reached by the host NAME.localhost, or a port of its own.
    With `auth="sas"` tokens are verified, and `sas_key` is the root key. Other settings are variables:
    `with_env("EMUBUS_…", …)`. Its ports are mapped to free ports of the host; each accepts AMQP and HTTP.
    """

    def __init__(
        self,
        image: str = "emubus:latest",
        *,
        config: Path | str | None = None,
        namespace: str | None = None,
        profile: str = "standard",
        auth: Auth | str = Auth.NONE,
        sas_key: str = DEFAULT_KEY,
        **kwargs: Any,  # those of `DockerContainer` and of the Docker SDK behind it, which has no types
    ) -> None:
        super().__init__(image, **kwargs)
        self._sas_key = sas_key
        self._namespace = namespace
        self.with_exposed_ports(AMQP_PORT, HTTP_PORT)
        self.with_envs(EMUBUS_DURABILITY="none", EMUBUS_PROFILE=profile, EMUBUS_AUTH=Auth(auth).value)
        if Auth(auth) is not Auth.NONE:
            self.with_env("EMUBUS_SAS_KEY", sas_key)
        if config is not None:
            path = Path(config).resolve()
            if not path.is_file():  # Docker would make a folder of that name, and the container would fail to start
                raise FileNotFoundError(f"the config of the container is {path}: there is no such file")
            self.with_volume_mapping(str(path), str(MOUNTED_CONFIG_FILE), "ro")
        ready = HttpWaitStrategy(HTTP_PORT, "/health").for_status_code(200)
        self.waiting_for(ready.with_startup_timeout(START_S_MAX).with_poll_interval(POLL_S))

    def get_connection_string(self) -> str:
        """The connection string for sending and receiving."""
        return self._connection_string(AMQP_PORT)

    def get_admin_connection_string(self) -> str:
        """The connection string for administration clients."""
        return self._connection_string(HTTP_PORT)

    def get_control_url(self) -> str:
        """The URL of web page and control API; also for `pytest --emubus-url`."""
        return f"http://{self.get_container_host_ip()}:{self.get_exposed_port(HTTP_PORT)}"

    def get_emubus(self) -> RemoteEmubus:
        """The test kit's verbs: create entities, move the clock, peek, reset, …"""
        return RemoteEmubus(self.get_control_url(), key=self._sas_key, namespace=self._namespace)

    def _connection_string(self, port: int) -> str:
        host = f"{self.get_container_host_ip()}:{self.get_exposed_port(port)}"
        return (
            f"Endpoint=sb://{host};SharedAccessKeyName={DEFAULT_KEY_NAME};SharedAccessKey={self._sas_key};"
            "UseDevelopmentEmulator=true;"
        )
