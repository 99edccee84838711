"""The last refusals over HTTP: of a real SDK and of the management API, with the remedy of the log."""

from __future__ import annotations

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage
from azure.servicebus.exceptions import ServiceBusError

from .client import Http
from .conftest import PLAIN


def test_what_clients_were_refused_is_there_with_the_remedy_until_a_reset(control: Http, sdk: ServiceBusClient) -> None:
    assert control.get("/refusals") == {"last_number": 0, "refusals": []}
    with pytest.raises(ServiceBusError), sdk.get_queue_sender("plian") as sender:
        sender.send_messages(ServiceBusMessage("x"))
    assert control.send("DELETE", "/nowhere").status == 404
    answer = control.get("/refusals")
    *tries, missing = answer["refusals"]
    assert tries
    for misspelt in tries:  # the SDK connects for each
        assert misspelt["client"].startswith("azsdk-python-servicebus")
        assert (misspelt["entity"], misspelt["code"]) == ("plian", "amqp:not-found")
        assert misspelt["remedy"] == f"no queue, topic or subscription 'plian'; did you mean '{PLAIN}'?"
    assert (missing["entity"], missing["code"], missing["remedy"]) == ("nowhere", "404", None)
    assert answer["last_number"] == missing["number"] == sum(each["count"] for each in answer["refusals"])
    assert control.get(f"/refusals?after={tries[-1]['number']}")["refusals"] == [missing]
    assert control.get("/refusals?entity=PLIAN")["refusals"] == tries
    assert control.get("/refusals?count=1")["refusals"] == [missing]
    control.post("/reset", {"to": "start"})
    assert control.get("/refusals") == {"last_number": answer["last_number"], "refusals": []}
