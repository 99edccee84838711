"""Kept templates over the control API, also across restarts; and a Config.json for the running namespace."""

from __future__ import annotations

import json
from pathlib import Path
from urllib.parse import quote

import pytest

from emubus.broker.admin.folder_view import FolderView
from emubus.broker.model.descriptions import QueueDescription
from emubus.broker.names import KeptFile
from emubus.testing import EmubusServer
from emubus.web.messages.templates import MESSAGE_CHARS_MAX, TEMPLATES_MAX

from .client import Http
from .conftest import PLAIN

MESSAGE = {
    "header": {"ttl_ms": 60_000},
    "properties": {
        "subject": "order",
        "correlation_id": {"type": "uuid", "value": "a" * 8 + "-0000-0000-0000-" + "0" * 12},
    },
    "application_properties": {"n": {"type": "uint", "value": 7}},
    "body": {"kind": "value", "value": ["a", 1]},
}
EVIL = "../<b>/%2f 'é"


def test_a_template_is_kept_sent_and_forgotten(control: Http, server: EmubusServer) -> None:
    path = f"/templates/{quote(EVIL, safe='')}"
    kept = control.done(control.ask("PUT", path, {"message": MESSAGE}))
    assert kept == {"name": EVIL, "message": MESSAGE}
    assert (control.get(path), control.get("/templates")) == (kept, {"templates": [kept]})
    results = control.post(f"{path}/send", {"entity": PLAIN, "count": 3})["results"]
    assert [each["sequence_number"] for each in results] == [1, 2, 3]
    sent = control.get(f"/entities/{PLAIN}/messages?count=1")["messages"][0]
    assert (sent["body"]["json"], sent["properties"]["subject"], sent["header"]["ttl_ms"]) == (
        ["a", 1],
        "order",
        60_000,
    )
    line = json.loads(control.send("GET", f"/emubus/v1/entities/{PLAIN}/messages/lines").content.splitlines()[0])
    assert line["message"]["application_properties"] == MESSAGE["application_properties"]
    assert control.done(control.ask("DELETE", path)) == {"name": EVIL}
    assert control.get("/templates") == {"templates": []}
    assert {control.ask(verb, path).status for verb in ("GET", "DELETE")} == {404}
    assert control.ask("POST", f"{path}/send", {"entity": PLAIN}).status == 404


@pytest.mark.parametrize(
    "message", [{"moon": {}}, {"body": {"kind": "moon"}}, {"header": []}, {"properties": {"a": 1}}]
)
def test_what_is_no_message_is_not_kept(control: Http, message: object) -> None:
    refused = control.ask("PUT", "/templates/t", {"message": message})
    assert (refused.status, refused.json["detail"].startswith("This is no message: ")) == (400, True)
    assert control.get("/templates") == {"templates": []}


def test_there_are_only_so_many_and_so_large_ones(control: Http, server: EmubusServer) -> None:
    large = {"message": {"body": {"kind": "data", "text": "x" * MESSAGE_CHARS_MAX}}}
    assert control.ask("PUT", "/templates/large", large).status == 400
    for number in range(TEMPLATES_MAX):
        control.done(control.ask("PUT", f"/templates/{number}", {"message": {}}))
    assert control.ask("PUT", "/templates/more", {"message": {}}).status == 409
    assert control.ask("PUT", "/templates/0", {"message": MESSAGE}).status == 200
    assert len(control.get("/templates")["templates"]) == TEMPLATES_MAX


def test_templates_survive_a_restart_and_a_damaged_file_does_not_stop_it(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    with EmubusServer([QueueDescription(PLAIN)], data_dir=folder) as server:
        control = Http(server.http_port)
        control.done(control.ask("PUT", "/templates/t", {"message": MESSAGE}))
        control.post("/reset", {"to": "config"})
        control.done(control.ask("PUT", "/snapshots/s"))
        control.post("/snapshots/s/restore")
    view = FolderView(folder)
    assert list(view.verify(view.manifest())) == []
    with EmubusServer([QueueDescription(PLAIN)], data_dir=folder) as server:
        assert Http(server.http_port).get("/templates/t")["message"] == MESSAGE
    (folder / KeptFile.TEMPLATES).write_bytes(b"[1]")
    with EmubusServer([QueueDescription(PLAIN)], data_dir=folder) as server:
        assert Http(server.http_port).get("/templates") == {"templates": []}


def test_the_entities_of_a_config_are_created_where_they_are_missing(control: Http, server: EmubusServer) -> None:
    control.post(f"/entities/{PLAIN}/messages", {"messages": [{"body": "stays"}]})
    exported = control.send("GET", "/emubus/v1/config").content
    config = json.loads(exported)
    queues = config["UserConfig"]["Namespaces"][0]["Queues"]
    window = {"DuplicateDetectionHistoryTimeWindow": "PT5S", "Colour": 1}  # of the file's schema, below the tier's
    queues.append({"Name": "new", "Properties": {"LockDuration": "PT7S", **window}})
    body = b"\xff\xfe" + json.dumps(config).encode("utf-16-le")
    answered = control.send("POST", "/emubus/v1/config", body, Content_Type="application/json")
    assert answered.status == 200, answered.content
    assert answered.json["created"] == ["new"]
    assert PLAIN in answered.json["existing"]
    assert answered.json["failures"] == []
    (warning,) = answered.json["warnings"]
    assert warning.endswith("Properties.Colour is not a known property: it is passed over")
    assert control.get("/entities/new/properties")["properties"]["lock_duration_ms"] == 7_000
    assert control.get(f"/entities/{PLAIN}")["messages"]["active"] == 1
    queues[-1] = {"Name": "newer", "Properties": {"LockDuration": "PT9M"}}
    refused = control.send("POST", "/emubus/v1/config", json.dumps(config).encode(), Content_Type="application/json")
    assert (refused.status, "LockDuration" in refused.json["detail"]) == (400, True)
    assert control.ask("GET", "/entities/newer").status == 404
    assert control.send("POST", "/emubus/v1/config", b"\xff", Content_Type="application/json").status == 400
