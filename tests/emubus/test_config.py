"""Command line, environment and defaults, as one configuration."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from emubus import config as config_module
from emubus.broker.access import DEFAULT_SHARED_KEY
from emubus.broker.keys import ALL_RIGHTS, SharedKey
from emubus.broker.model.descriptions import QueueDescription, Topology
from emubus.broker.model.profiles import HOUR_MS, LIMITS, Profile, limits_for
from emubus.broker.roles import RoleAssignment
from emubus.config import (
    OPTIONS,
    Auth,
    Config,
    ConfigError,
    Failpoint,
    LogFormat,
    LogLevel,
    NamespaceConfig,
    load_config,
)
from emubus.storage.contract import Durability


def complaint(arguments: dict[str, str | None], environment: dict[str, str] | None = None) -> str:
    with pytest.raises(ConfigError) as raised:
        load_config(arguments, environment or {})
    return str(raised.value)


def write(path: Path, queue: str, more: str = "") -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f'{{"UserConfig": {{"Namespaces": [{{"Name": "ns", "Queues": [{{"Name": "{queue}"}}]{more}}}]}}}}')
    return str(path)


def test_without_any_setting_there_is_one_queue_and_a_folder_that_keeps_it() -> None:
    assert load_config({}, {}) == Config(
        topology=Topology(queues=(QueueDescription("queue.1"),)),
        limits=LIMITS[Profile.STANDARD],
        config_file=None,
        data_dir=Path("emubus-data"),
        durability=Durability.SECOND,
        host="127.0.0.1",
        amqp_port=5672,
        http_port=5300,
        auth=Auth.NONE,
        keys=(DEFAULT_SHARED_KEY,),
        log_format=LogFormat.CONSOLE,
        log_level=LogLevel.INFO,
        failpoint=None,
        notes=(),
        story=True,
        story_a_second=5_000,
    )


SETTINGS = {
    "data": "/d",
    "fresh": "yes",
    "host": "::1",
    "amqp_port": "0",
    "http_port": "8080",
    "durability": "process",
    "profile": "premium",
    "premium_partitions": "4",
    "auth": "rbac",
    "sas_key": "secret",
    "tls": "off",
    "tls_cert": "/c.pem",
    "tls_key": "/k.pem",
    "tls_port": "443,5671",
    "allowed_host": "bus.test, other.test",
    "ready_file": "/r.json",
    "log_format": "json",
    "log_level": "debug",
    "failpoint": "committed:3",
    "conditions": "throttled, idle-link",
    "seed": "7",
    "story": "no",
    "service_only": "yes",
    "otlp": "https://collector:4318",
    "namespace": "other:relaxed@5673",
    "roles": "app:sender:q",
}


def test_every_option_can_be_set_by_argument_and_by_environment_with_the_same_result(tmp_path: Path) -> None:
    settings = {**SETTINGS, "config": write(tmp_path / "c.json", "q")}
    assert {*settings, "queues"} == {option.name for option in OPTIONS}  # a file and a list exclude each other
    by_argument = load_config(settings, {})
    by_environment = load_config({}, {f"EMUBUS_{name.upper()}": text for name, text in settings.items()})
    assert by_argument == by_environment
    assert by_argument == Config(
        topology=Topology("ns", queues=(QueueDescription("q", enable_partitioning=True),)),
        limits=limits_for(Profile.PREMIUM, 4),
        config_file=tmp_path / "c.json",
        entities_from=str(tmp_path / "c.json"),
        data_dir=Path("/d"),
        fresh=True,
        durability=Durability.PROCESS,
        host="::1",
        amqp_port=0,
        http_port=8080,
        auth=Auth.RBAC,
        keys=(SharedKey("RootManageSharedAccessKey", "secret", ALL_RIGHTS),),
        tls_dir=Path("/d"),
        tls_files=(Path("/c.pem"), Path("/k.pem")),
        more_ports=(443, 5671),
        allowed_hosts=("bus.test", "other.test"),
        ready_file=Path("/r.json"),
        log_format=LogFormat.JSON,
        log_level=LogLevel.DEBUG,
        failpoint=Failpoint("committed", 3),
        conditions=("throttled", "idle-link"),
        seed=7,
        story=False,
        story_a_second=5_000,
        service_only=True,
        roles=(RoleAssignment.parse("app", "sender", "q"),),
        otlp="https://collector:4318",
        more_namespaces=(NamespaceConfig(Topology("other"), limits_for(Profile.RELAXED), port=5673),),
        new_keys=(SharedKey("RootManageSharedAccessKey", "secret", ALL_RIGHTS),),
    )


def test_the_story_of_messages_is_kept_unless_somebody_says_no() -> None:
    assert load_config({}, {}).story
    assert not load_config({}, {"EMUBUS_STORY": "no"}).story
    assert load_config({"story": "yes"}, {"EMUBUS_STORY": "no"}).story


def test_an_argument_wins_over_the_environment_and_an_empty_variable_is_none() -> None:
    environment = {"EMUBUS_AMQP_PORT": "1111", "EMUBUS_HTTP_PORT": ""}
    assert load_config({"amqp_port": "2222"}, environment).amqp_port == 2222
    assert load_config({"amqp_port": None}, environment).amqp_port == 1111
    assert load_config({}, environment).http_port == 5300


def test_the_http_port_of_microsofts_emulator_is_taken_unless_ours_is_set() -> None:
    assert load_config({}, {"EMULATOR_HTTP_PORT": "80"}).http_port == 80
    assert load_config({}, {"EMULATOR_HTTP_PORT": "80", "EMUBUS_HTTP_PORT": "81"}).http_port == 81


def test_what_only_microsofts_emulator_needs_is_accepted_with_one_note() -> None:
    environment = {"ACCEPT_EULA": "Y", "SQL_SERVER": "sql", "MSSQL_SA_PASSWORD": "secret", "SQL_WAIT_INTERVAL": "15"}
    (note,) = load_config({}, environment).notes
    assert note.startswith("ACCEPT_EULA, SQL_SERVER, MSSQL_SA_PASSWORD, SQL_WAIT_INTERVAL: ignored")
    assert "secret" not in note


def test_a_misspelt_variable_is_noted_with_what_may_be_meant() -> None:
    environment = {"EMUBUS_DURABLITY": "none", "EMUBUS_PORT": "tcp://10.0.0.1:5672"}
    assert load_config({}, environment).notes == (
        "EMUBUS_DURABLITY is not a setting of emubus; did you mean EMUBUS_DURABILITY?",
    )


def test_a_port_that_kubernetes_sets_for_a_service_of_the_same_name_is_no_setting() -> None:
    assert load_config({}, {"EMUBUS_AMQP_PORT": "tcp://10.0.0.1:5672"}).amqp_port == 5672


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({"amqp_port": "65536"}, "{amqp_port} is '65536'; allowed is 0 to 65535 (0 for a free port)"),
        ({"http_port": "-1"}, "{http_port} is '-1'; allowed is 0 to 65535 (0 for a free port)"),
        ({"http_port": "9" * 5000}, "{http_port} is '999"),
        (
            {"profile": "premum"},
            "{profile} is 'premum'; allowed is standard, premium, ms-emulator, relaxed; did you mean premium?",
        ),
        ({"durability": "Full"}, "{durability} is 'Full'; allowed is full, second, process, none; did you mean full?"),
        ({"premium_partitions": "3"}, "{premium_partitions} is '3'; allowed is none, 1, 2, 4"),
        ({"premium_partitions": "2"}, "{premium_partitions} 2 needs the profile premium; the profile is standard"),
        ({"failpoint": "committed"}, "{failpoint} is 'committed'; allowed is NAME:N with a NAME of batch-applied, "),
        ({"failpoint": "committed:0"}, "{failpoint} is 'committed:0'; allowed is NAME:N"),
        ({"failpoint": "comitted:1"}, "{failpoint} is 'comitted:1'; allowed is NAME:N"),
        ({"conditions": "throttled,"}, "{conditions} is 'throttled,'; allowed is names, separated by commas"),
        ({"seed": "-1"}, "{seed} is '-1'; allowed is a whole number of up to 15 digits"),
        ({"host": " "}, "{host} is ' '; allowed is a non-empty text"),
        ({"sas_key": ""}, "{sas_key} is (not shown); allowed is a non-empty text"),
        ({"amqp_port": "5300"}, "{amqp_port} and {http_port} are 5300: give each a port of its own"),
        ({"tls_port": "5671,5671"}, "{tls_port} has port 5671 twice: give each a port of its own"),
        ({"tls_port": "5672"}, "{amqp_port} and {tls_port} are 5672: give each a port of its own"),
        ({"namespace": "a,b@5300"}, "{http_port} and {namespace} b are 5300: give each a port of its own"),
        ({"namespace": "a@5673"}, "{namespace} a is the first, which has --amqp-port: leave out @5673"),
        (
            {"conditions": "throttled,throttled"},
            "{conditions} is 'throttled,throttled'; allowed is names, separated by",
        ),
        ({"queues": "a,b,A"}, "{queues} has the queue 'A' twice; name it once, with all its flags"),
        ({"queues": "a", "config": "/nowhere.json"}, "{config} and {queues} exclude each other: give one of them"),
        ({"fresh": "yes", "durability": "none"}, "{fresh} empties the data folder, but {durability} none has no"),
        ({"tls_cert": "/c.pem"}, "{tls_cert} is /c.pem; --tls-cert and --tls-key go together: give --tls-key, too"),
        (
            {"tls": "dev", "tls_cert": "/c", "tls_key": "/k"},
            "{tls} dev makes its own certificate: leave out {tls_cert}",
        ),
        *(
            ({name: ""}, f"{{{name}}} is ''; allowed is a non-empty path")
            for name in ("config", "data", "tls_cert", "tls_key", "ready_file")
        ),
        *(({name: ""}, f"{{{name}}} is ") for name in SETTINGS if name not in ("fresh", "story", "service_only")),
        ({"config": "/nowhere.json"}, "/nowhere.json: cannot be read: No such file or directory"),
        ({"data": __file__}, f"{{data}} is {__file__}, a file; name a folder, which may be new"),
    ],
)
def test_a_value_that_is_not_allowed_is_reported_with_its_source_and_what_is(
    arguments: dict[str, str], expected: str
) -> None:
    """Its source is the option, or the variable that sets it."""
    flags = {option.name: option.flag for option in OPTIONS}
    assert complaint({**arguments}).startswith(expected.format(**flags))
    if all(arguments.values()):  # an empty variable counts as unset
        variables = {name: f"EMUBUS_{name.upper()}" for name in arguments}
        environment = {variables[name]: text for name, text in arguments.items()}
        assert complaint({}, environment).startswith(expected.format(**{**flags, **variables}))


def test_an_empty_variable_counts_as_unset() -> None:
    assert load_config({}, {f"EMUBUS_{name.upper()}": "" for name in SETTINGS}) == load_config({}, {})


@pytest.mark.parametrize(
    ("name", "text"),
    [("seed", "7"), ("roles", "app:sender"), ("sas_key", "k"), ("tls_port", "443")],
)
def test_what_has_no_effect_is_said_by_the_option_or_variable_that_sets_it(name: str, text: str) -> None:
    flag, variable = f"--{name.replace('_', '-')}", f"EMUBUS_{name.upper()}"
    for source, config in ((flag, load_config({name: text}, {})), (variable, load_config({}, {variable: text}))):
        (warning,) = config.warnings
        assert warning.startswith(source)
        assert "--" in warning.removeprefix(source)


def test_a_seed_beside_conditions_has_an_effect() -> None:
    assert load_config({"seed": "7", "conditions": "throttled"}, {}).warnings == ()


def test_a_complaint_names_the_variable_that_a_value_came_from() -> None:
    assert complaint({}, {"EMUBUS_AUTH": "yes"}) == "EMUBUS_AUTH is 'yes'; allowed is none, sas, rbac"


def test_both_ports_may_be_free_ones() -> None:
    config = load_config({"amqp_port": "0", "http_port": "0"}, {})
    assert (config.amqp_port, config.http_port) == (0, 0)


def test_without_durability_there_is_no_data_folder() -> None:
    assert load_config({"durability": "none", "data": __file__}, {}).data_dir is None


def test_the_default_queue_has_the_defaults_of_the_profile() -> None:
    (queue,) = load_config({"profile": "ms-emulator"}, {}).topology.queues
    assert (queue.max_delivery_count, queue.default_ttl_ms, queue.max_size_mb) == (3, HOUR_MS, 100)
    (queue,) = load_config({"profile": "premium", "premium_partitions": "2"}, {}).topology.queues
    assert queue.enable_partitioning


def test_a_file_mounted_where_microsofts_emulator_has_it_is_used_unless_another_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mounted, other = tmp_path / "ConfigFiles" / "Config.json", tmp_path / "other.json"
    monkeypatch.setattr(config_module, "MOUNTED_CONFIG_FILE", mounted)
    assert load_config({}, {}).config_file is None
    write(mounted, "mounted")
    assert load_config({}, {}).topology.queues == (QueueDescription("mounted"),)
    environment = {"EMUBUS_CONFIG": write(other, "other")}
    assert load_config({}, environment).topology.queues == (QueueDescription("other"),)


MOUNTS: dict[str, tuple[Callable[[Path], object], str]] = {
    "a folder in place of the file": (lambda folder: (folder / "Config.json").mkdir(), "Is a directory"),
    "a link to nothing": (lambda folder: (folder / "Config.json").symlink_to("gone"), "a link to gone, which is not"),
    "the file in other case": (
        lambda folder: (folder / "config.json").write_text("{}"),
        "has no Config.json, but config.json: rename config.json to Config.json",
    ),
    "the file under another name": (
        lambda folder: (folder / "bus.json").write_text("{}"),
        "has no Config.json, but bus.json: name the file Config.json",
    ),
    "a folder of folders": (lambda folder: (folder / "more").mkdir(), "has no Config.json, but more"),
    "an empty file": (lambda folder: (folder / "Config.json").touch(), "is not JSON"),
}


@pytest.mark.parametrize(("make", "said"), MOUNTS.values(), ids=MOUNTS)
def test_a_mounted_configuration_that_can_not_be_used_stops_the_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, make: Callable[[Path], object], said: str
) -> None:
    monkeypatch.setattr(config_module, "MOUNTED_CONFIG_FILE", tmp_path / "Config.json")
    make(tmp_path)
    with pytest.raises(ConfigError) as raised:
        load_config({}, {})
    assert str(raised.value).startswith(str(tmp_path))
    assert said in str(raised.value)


def test_a_mounted_folder_that_is_a_link_to_nothing_or_a_file_stops_the_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "ConfigFiles"
    monkeypatch.setattr(config_module, "MOUNTED_CONFIG_FILE", folder / "Config.json")
    folder.symlink_to("gone")
    with pytest.raises(ConfigError, match=f"{folder} is a link to nothing"):
        load_config({}, {})
    folder.unlink()
    folder.write_text("{}")
    with pytest.raises(ConfigError, match=f"{folder} can't be read: Not a directory"):
        load_config({}, {})


def test_the_source_of_the_entities_is_named_and_a_mounted_file_beside_it_is_a_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mounted, other = tmp_path / "ConfigFiles" / "Config.json", tmp_path / "other.json"
    monkeypatch.setattr(config_module, "MOUNTED_CONFIG_FILE", mounted)
    assert load_config({}, {}).entities_from is None
    mounted.parent.mkdir()
    assert load_config({}, {}).entities_from == f"none: {mounted.parent} is empty"
    text = write(mounted, "mounted")
    assert (load_config({}, {}).entities_from, load_config({}, {}).warnings) == (text, ())
    assert load_config({"config": text}, {}).warnings == ()
    inline = '{"UserConfig": {"Namespaces": [{"Name": "ns"}]}}'
    for arguments, environment, source in (
        ({"queues": "a"}, {}, "--queues"),
        ({}, {"EMUBUS_CONFIG_JSON": inline}, "EMUBUS_CONFIG_JSON"),
        ({"config": write(other, "other")}, {}, str(other)),
    ):
        found = load_config(arguments, environment)
        assert (found.entities_from, found.config_file) == (source, other if source == str(other) else None)
        assert found.warnings == (f"{mounted} is not used: the entities are from {source}",)


def test_of_many_warnings_the_first_are_shown() -> None:
    more = ", ".join(f'"x{number}": 1' for number in range(60))
    text = f'{{"UserConfig": {{"Namespaces": [{{"Name": "ns", {more}}}]}}}}'
    warnings = load_config({}, {"EMUBUS_CONFIG_JSON": text}).warnings
    assert len(warnings) == config_module.WARNINGS_SHOWN + 1
    assert warnings[-1] == "EMUBUS_CONFIG_JSON has 10 more warnings: emubus config check prints all"


def test_the_root_key_is_that_of_the_setting_else_of_the_file_else_microsofts(tmp_path: Path) -> None:
    rule = '{"KeyName": "RootManageSharedAccessKey", "Rights": ["Manage"], "PrimaryKey": "of-file"}'
    with_root = write(tmp_path / "root.json", "q", f', "AuthorizationRules": [{rule}]')
    with_other = write(tmp_path / "other.json", "q", f', "AuthorizationRules": [{rule.replace("Root", "Other")}]')
    assert [key.key for key in load_config({"config": with_root}, {}).keys] == ["of-file"]
    assert [key.key for key in load_config({"config": with_root, "sas_key": "set"}, {}).keys] == ["set"]
    assert [key.key for key in load_config({"config": with_other}, {}).keys] == ["SAS_KEY_VALUE", "of-file"]
    assert [key.key for key in load_config({"config": with_other, "sas_key": "set"}, {}).keys] == ["set", "of-file"]


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"tls_cert": "/c.pem"}, "go together"),
        ({"tls_key": "/k.pem"}, "go together"),
        ({"tls": "dev", "tls_cert": "/c.pem", "tls_key": "/k.pem"}, "leave out --tls-cert"),
        ({"tls_port": "443,x"}, "ports from 0 to 65535, separated by commas"),
        ({"tls": "yes"}, "off, dev"),
    ],
)
def test_settings_of_tls_that_contradict_each_other_are_refused(settings: dict[str, str | None], text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        load_config(settings, {})


@pytest.mark.parametrize(("text", "meant"), [("yes", True), ("TRUE", True), ("1", True), ("no", False), ("0", False)])
def test_a_switch_is_yes_or_no_in_the_environment(text: str, meant: bool) -> None:
    assert load_config({}, {"EMUBUS_FRESH": text}).fresh is meant
    assert load_config({}, {}).fresh is False


def test_a_switch_that_is_neither_is_refused() -> None:
    with pytest.raises(ConfigError, match="EMUBUS_FRESH is 'perhaps'; allowed is yes or no"):
        load_config({}, {"EMUBUS_FRESH": "perhaps"})


def test_there_is_nothing_to_delete_for_a_server_in_memory() -> None:
    with pytest.raises(ConfigError, match="--fresh empties the data folder, but --durability none has no data folder"):
        load_config({"fresh": "yes", "durability": "none"}, {})


# ---------------------------------------------------------------- entities without a file


def test_a_list_of_queues_stands_for_a_file() -> None:
    plain, parts, once = load_config({}, {"EMUBUS_QUEUES": "a, b?sessions&partitioned,c?duplicates"}).topology.queues
    assert (plain.name, plain.requires_session) == ("a", False)
    assert (parts.name, parts.requires_session, parts.enable_partitioning) == ("b", True, True)
    assert (once.name, once.requires_duplicate_detection) == ("c", True)


def test_a_configuration_can_be_a_variable() -> None:
    text = '{"UserConfig": {"Namespaces": [{"Name": "inline", "Queues": [{"Name": "q"}]}]}}'
    config = load_config({}, {"EMUBUS_CONFIG_JSON": text})
    assert (config.topology.namespace, [each.name for each in config.topology.queues]) == ("inline", ["q"])


@pytest.mark.parametrize(
    ("arguments", "environment", "expected"),
    [
        ({"queues": "a?sesions"}, {}, "--queues has 'sesions'; allowed is sessions, partitioned, duplicates; did you"),
        ({"queues": "a,,b"}, {}, "--queues has a queue whose "),
        ({"queues": "a"}, {"EMUBUS_CONFIG_JSON": "{}"}, "exclude each other"),
        ({}, {"EMUBUS_CONFIG_JSON": "{"}, "EMUBUS_CONFIG_JSON:1:2: is not JSON"),
    ],
)
def test_what_is_wrong_with_them_is_reported(
    arguments: dict[str, str], environment: dict[str, str], expected: str
) -> None:
    with pytest.raises(ConfigError) as raised:
        load_config(arguments, environment)
    assert expected in str(raised.value)


def test_a_property_beside_the_configuration_is_passed_over_with_a_note() -> None:
    text = '{"UserConfig": {"Namespaces": [{"Name": "ns"}]},\n"Comment": "mine"}'
    (warning,) = load_config({}, {"EMUBUS_CONFIG_JSON": text}).warnings
    assert warning == "EMUBUS_CONFIG_JSON:2: $.Comment is not a known property: it is passed over"
