"""`clock`, `outage`, `fault`, `snapshot`, `reset`, `token`, `connection-string`: answer, JSON, errors, exit code."""

from __future__ import annotations

import urllib.error
import urllib.request
from pathlib import Path

import pytest

from emubus.conditions.presets import PRESETS
from emubus.conditions.table import BEHAVIOURS
from emubus.config import Auth
from emubus.testing import EmubusServer

from .conftest import CommandLine

BEHAVIOUR = next(iter(PRESETS["throttled"].behaviours))
PARAMETER = BEHAVIOURS[BEHAVIOUR].parameters[0]


def test_the_clock_is_shown_moved_and_frozen(emubus: CommandLine) -> None:
    before = emubus.json("clock")
    after = emubus.json("clock", "advance", "2h")
    assert after["offset_ms"] - before["offset_ms"] == 7_200_000
    assert "Frozen  yes" in emubus.done("clock", "freeze")
    assert "Frozen  no" in emubus.done("clock", "thaw")


def test_an_outage_begins_and_ends(emubus: CommandLine) -> None:
    stores = emubus.json("outage", "down", "3", "4", "--for", "1h")["stores"]
    assert [each["store"] for each in stores if each["health"] == "down"] == [3, 4]
    emubus.done("outage", "end", "3")
    slow = emubus.done("outage", "slow", "5", "--delay", "250ms").splitlines()
    assert slow[6].split()[:3] == ["5", "slow", "250"]
    assert {each["health"] for each in emubus.json("outage", "end")["stores"]} == {"available"}


def test_an_outage_a_fault_and_a_condition_begin_and_end_in_the_same_words(emubus: CommandLine) -> None:
    assert [each["health"] for each in emubus.json("outage", "begin", "down", "3")["stores"]][3] == "down"
    assert "down" in emubus.done("outage", "list")
    emubus.done("outage", "end", "3")
    fault = emubus.json("fault", "begin", "server-busy")
    assert [each["id"] for each in emubus.json("fault", "list")["faults"]] == [fault["id"]]
    assert emubus.done("fault", "end", str(fault["id"])) == "cleared 1 faults\n"
    begun = emubus.json("condition", "begin", "throttled", "--for", "1h", "--entity", "orders", "--seed", "7")
    assert (begun["name"], begun["entity"], begun["seed"], begun["ends_at"] - begun["started_at"]) == (
        *("throttled", "orders", 7),
        3_600_000,
    )
    assert emubus.done("condition").splitlines()[1].split()[:3] == [str(begun["id"]), "throttled", "orders"]
    assert emubus.done("condition", "end", str(begun["id"])) == "ended 1 conditions\n"
    assert emubus.json("condition", "list") == {"conditions": []}
    assert emubus.json("condition", "end") == {"ended_count": 0}
    assert emubus.json("clock", "list")["is_frozen"] is False


def test_a_condition_takes_parameters_by_their_short_names(emubus: CommandLine) -> None:
    parameter, default = PARAMETER.name, PARAMETER.default
    for name in ("throttled", BEHAVIOUR):
        for written in (parameter, f"{BEHAVIOUR}.{parameter}"):
            begun = emubus.json("condition", "begin", name, "--set", f"{written}={default}")
            values = {each["name"]: each["value"] for each in begun["values"]}
            assert values[f"{BEHAVIOUR}.{parameter}"] == default
    emubus.done("condition", "end")
    assert f"{BEHAVIOUR}.{parameter}" in emubus.done("condition", "names", "throttled")
    assert "rolling-upgrade" in emubus.done("condition", "names")


def test_faults_are_added_listed_and_cleared(emubus: CommandLine) -> None:
    options = ("--entity", "orders", "--operation", "send", "--count", "2")
    assert emubus.done("fault", "add", "server-busy", *options).endswith(": server-busy\n")
    (fault,) = emubus.json("fault")["faults"]
    assert (fault["entity"], fault["operations"], fault["count"]) == ("orders", ["send"], 2)
    assert "server-busy" in emubus.done("fault")
    assert emubus.done("fault", "clear", str(fault["id"])) == "cleared 1 faults\n"
    assert emubus.json("fault", "clear") == {"cleared_count": 0}


def test_a_snapshot_is_taken_downloaded_uploaded_and_restored(emubus: CommandLine, tmp_path: Path) -> None:
    emubus.done("send", "orders", "x")
    assert emubus.done("snapshot", "take", "one") == "took snapshot one\n"
    emubus.done("purge", "orders")
    file = str(tmp_path / "one.tar")
    emubus.done("snapshot", "download", "one", "--file", file)
    assert emubus.json("snapshot", "upload", "two", "--file", file)["message_count"] == 1
    assert [line.split()[0] for line in emubus.done("snapshot").splitlines()] == ["SNAPSHOT", "one", "two"]
    emubus.done("snapshot", "restore", "two")
    assert emubus.done("peek", "orders", "--body") == "x\n"
    for name in ("one", "two"):
        assert emubus.done("snapshot", "delete", name) == f"deleted snapshot {name}\n"


def test_reset_goes_back_to_the_start(emubus: CommandLine) -> None:
    emubus.done("create", "queue", "more")
    emubus.done("send", "orders", "x")
    assert emubus.json("reset", "--to", "empty") == {"message_count": 1}
    assert "more" in emubus.done("ls")
    assert emubus.done("reset") == "reset to start: removed 0 messages\n"
    assert "more" not in emubus.done("ls")


@pytest.mark.parametrize(
    ("arguments", "code", "error"),
    [
        (("clock", "advance"), 2, "needs a SPAN"),
        (("clock", "freeze", "5m"), 2, "needs a SPAN"),
        (("clock", "frezze"), 2, "did you mean freeze?"),
        (("outage", "down"), 2, "needs the numbers of the stores"),
        (("outage", "down", "99"), 2, "STORE is 99; this server has the stores 0 to 15"),
        (("outage", "end", "99"), 2, "STORE is 99; this server has the stores 0 to 15"),
        (("outage", "begin"), 2, "has a KIND of down, slow, failing, full"),
        (("outage", "begin", "dwon", "1"), 2, "KIND is 'dwon'"),
        (("outage", "begin", "down"), 2, "needs the numbers of the stores"),
        (("outage", "down", "x"), 2, "STORE is 'x'; allowed is the number of a messaging store"),
        (("outage", "down", "1", "--for", "5"), 2, "--for is '5'; allowed is 500ms, 30s"),
        (("fault", "add"), 2, "KIND is missing; `emubus fault begin KIND` has a KIND of "),
        (("fault", "add", "server-buzy"), 2, "KIND is 'server-buzy'; did you mean server-busy?"),
        (
            ("fault", "begin", "server-busy", "--probability", "2"),
            2,
            "--probability is '2'; allowed is a number that is",
        ),
        (("fault", "begin", "server-busy", "--probability", "x"), 2, "--probability is 'x'; allowed is a number"),
        (("fault", "begin", "server-busy", "--operation", "sned"), 1, "--operation is 'sned'"),
        (("condition", "begin"), 2, "needs one NAME"),
        (("condition", "begin", "throtled"), 2, "NAME is 'throtled'; did you mean throttled?"),
        (("condition", "begin", "throttled", "--set", "credit=1"), 2, "--set is 'credit=1'; did you mean "),
        (("condition", "begin", "throttled", "--entity", "none"), 1, "none"),
        (("condition", "begin", "throttled", "--for", "soon"), 2, "--for is 'soon'"),
        (("condition", "begin", "throttled", "--count", "0"), 2, "--count is '0'; allowed is a whole number"),
        (("condition", "end", "99"), 1, "No condition 99 is on"),
        (("condition", "end", "x"), 2, "No condition 'x' is on; on are: none"),
        (("condition", "list", "x"), 2, "takes no NAME"),
        (("condition", "end", "--for", "1s"), 2, "go with begin, not with end"),
        (("condition", "begn", "throttled"), 2, "did you mean begin?"),
        (("fault", "clear", "99"), 1, "No fault 99 is set"),
        (("snapshot", "take"), 2, "needs the NAME"),
        (("snapshot", "delete", "../data"), 2, "can't be the name of a snapshot"),
        (("snapshot", "restore", "none"), 1, "none"),
        (("snapshot", "upload", "one", "--file", "/no/such/file"), 2, "can't be read"),
        (("reset", "--to", "strt"), 2, "did you mean start?"),
        (("token", "--url", "ftp://x"), 2, "allowed is http://HOST:PORT"),
        (("connection-string", "--amqp-port", "x"), 2, "allowed is 0 to 65535"),
    ],
)
def test_what_is_wrong_is_refused(emubus: CommandLine, arguments: tuple[str, ...], code: int, error: str) -> None:
    ended = emubus(*arguments)
    assert (ended.code, ended.out) == (code, "")
    assert error in ended.err
    assert len(ended.err.splitlines()) == 1


# ---------------------------------------------------------------- which server, which key


def test_nobody_answers(offline: CommandLine) -> None:
    ended = offline("ls", "--url", "http://127.0.0.1:1")
    assert (ended.code, ended.out) == (3, "")
    assert ended.err.startswith("emubus: error: no answer from http://127.0.0.1:1: ")


def test_the_server_is_found_by_a_connection_string(offline: CommandLine, server: EmubusServer) -> None:
    given = f"Endpoint=sb://127.0.0.1:{server.amqp_port};SharedAccessKeyName=k;SharedAccessKey=s;"
    assert "orders" in offline.done("ls", "--connection-string", given)
    bad = offline("ls", "--connection-string", "SharedAccessKey=secret")
    assert bad.code == 2
    assert "secret" not in bad.err


def test_connection_strings_are_printed(offline: CommandLine) -> None:
    end = "SharedAccessKeyName=RootManageSharedAccessKey;SharedAccessKey=SAS_KEY_VALUE;"
    assert offline.done("connection-string") == f"Endpoint=sb://localhost:5672;{end}UseDevelopmentEmulator=true;\n"
    assert offline.done("connection-string", "--admin", "--tls") == f"Endpoint=sb://localhost:5300;{end}\n"
    found = offline.json("connection-string", "--entity", "orders", "--amqp-port", "5")["connection_string"]
    assert found == f"Endpoint=sb://localhost:5;{end}UseDevelopmentEmulator=true;EntityPath=orders;"


def test_a_key_or_a_token_opens_a_server_that_verifies(offline: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    with EmubusServer(auth=Auth.SAS) as secured:
        monkeypatch.setenv("EMUBUS_URL", f"http://127.0.0.1:{secured.http_port}")
        refused = offline("ls")
        assert (refused.code, "EMUBUS_SAS_KEY" in refused.err) == (1, True)
        monkeypatch.setenv("EMUBUS_SAS_KEY", "wrong")
        assert offline("ls").code == 1
        monkeypatch.setenv("EMUBUS_SAS_KEY", "SAS_KEY_VALUE")
        assert offline.done("ls").startswith("PATH")
        token = offline.json("token", "--life", "5m")
        assert token["expires_at"] > secured.now_ms()
        for path in ("/metrics", "/emubus/v1/entities"):
            request = urllib.request.Request(f"http://127.0.0.1:{secured.http_port}{path}")
            with pytest.raises(urllib.error.HTTPError) as unauthorized:
                urllib.request.urlopen(request, timeout=20)
            unauthorized.value.close()
            request.add_header("Authorization", token["token"])
            with urllib.request.urlopen(request, timeout=20) as answer:
                assert answer.status == 200
