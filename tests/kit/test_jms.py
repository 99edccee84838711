"""Which namespaces let in clients of JMS 2.0: those that say in their `open` that they are the library for it."""

from __future__ import annotations

import pytest
from proton import ConnectionException, symbol
from proton.utils import BlockingConnection

from emubus.broker.model.profiles import LIMITS, Profile, limits_for
from emubus.testing import EmubusServer

LIBRARY = {symbol("com.microsoft:is-client-provider"): True, symbol("user-agent"): "ServiceBusJms-2.1.0"}


def connect(server: EmubusServer, properties: dict[symbol, object]) -> list[str]:
    """The capabilities that are offered."""
    url = f"amqp://localhost:{server.amqp_port}"
    connection = BlockingConnection(url, allowed_mechs="ANONYMOUS", properties=properties, timeout=30)
    assert connection.conn is not None
    offered = [str(each) for each in connection.conn.remote_offered_capabilities or ()]
    connection.close()
    return offered


@pytest.mark.parametrize("profile", list(Profile))
def test_the_library_for_jms_2_connects_to_premium_and_relaxed_only_and_plain_clients_to_all(profile: Profile) -> None:
    with EmubusServer(profile=profile) as server:
        expected = ["DELAYED_DELIVERY", "SHARED-SUBS"] if LIMITS[profile].jms else []
        assert connect(server, {symbol("product"): "QpidJMS"}) == expected
        if LIMITS[profile].jms:
            assert connect(server, LIBRARY) == expected
        else:
            with pytest.raises(ConnectionException, match=r"amqp:not-implemented.*only by a Premium"):
                connect(server, LIBRARY)


def test_jms_2_is_for_premium_that_is_not_partitioned() -> None:
    assert [profile for profile in Profile if LIMITS[profile].jms] == [Profile.PREMIUM, Profile.RELAXED]
    assert [limits_for(Profile.PREMIUM, partitions).jms for partitions in (None, 1, 2, 4)] == [
        True,
        False,
        False,
        False,
    ]
