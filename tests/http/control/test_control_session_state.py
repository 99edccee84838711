"""The control API on the state of a message session: read, set, cleared, and what is refused."""

from __future__ import annotations

from base64 import b64encode

from azure.servicebus import ServiceBusClient, ServiceBusMessage

from emubus.testing import EmubusServer

from .client import Http
from .conftest import PLAIN, SESSIONS

STATE = f"/entities/{SESSIONS}/sessions/s%2F1/state"
NONE = {"session_id": "s/1", "state_bytes": None, "text": None, "base64": None, "json": None}


def test_a_state_of_each_form_is_set_and_read_and_a_receiver_gets_it(
    control: Http, sdk: ServiceBusClient, server: EmubusServer
) -> None:
    assert control.get(STATE) == NONE
    data = b"\xff\x00"
    encoded = b64encode(data).decode()
    for body, shown in (
        ({"text": '{"step":2}'}, {"state_bytes": 10, "text": '{"step":2}', "json": {"step": 2}}),
        ({"text": ""}, {}),
        ({"text": None, "base64": b64encode(b"words").decode()}, {"state_bytes": 5, "text": "words"}),
        ({"text": None, "base64": encoded}, {"state_bytes": 2, "base64": encoded}),
    ):
        expected = {**NONE, **shown}
        assert control.done(control.ask("PUT", STATE, body)) == expected
        assert control.get(STATE) == expected
    (listed,) = control.get(f"/entities/{SESSIONS}/sessions")["sessions"]
    assert (listed["session_id"], listed["state_bytes"], listed["holder"]) == ("s/1", 2, None)
    with sdk.get_queue_receiver(SESSIONS, session_id="s/1") as receiver:
        assert receiver.session.get_state() == data
    assert control.done(control.ask("PUT", STATE, {"text": None})) == NONE
    assert control.get(STATE) == NONE


def test_a_session_that_a_client_holds_keeps_its_state_and_the_refusal_names_the_client(
    control: Http, sdk: ServiceBusClient, server: EmubusServer
) -> None:
    with sdk.get_queue_sender(SESSIONS) as sender:
        sender.send_messages(ServiceBusMessage("x", session_id="s/1"))
    with sdk.get_queue_receiver(SESSIONS, session_id="s/1") as receiver:
        receiver.session.set_state(b"of the client")
        refused = control.ask("PUT", STATE, {"text": "other"})
        assert refused.status == 409
        assert "the session is held by azsdk-python-servicebus" in refused.json["detail"]
        assert control.get(STATE)["text"] == "of the client"


def test_what_is_no_state_is_refused(control: Http) -> None:
    def status(body: object, path: str = STATE) -> int:
        return control.ask("PUT", path, body).status

    assert status({}) == 400
    assert status({"text": None, "base64": "%"}) == 400
    assert status({"text": "x", "base64": "eA=="}) == 409
    assert status({"text": "x" * 300_000}) == 413
    assert status({"text": "x"}, f"/entities/{PLAIN}/sessions/s/state") == 409
    assert status({"text": "x"}, "/entities/nothing/sessions/s/state") == 404
    assert control.ask("GET", f"/entities/{PLAIN}/sessions/s/state").status == 409
    assert control.ask("DELETE", STATE).status == 405
    assert control.get(STATE) == NONE
