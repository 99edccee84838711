"""All settings, from command line, environment and Config.json, as one frozen `Config`.

Knows the options (one table: flag, environment variables, default, meaning), their precedence (command line, then
environment, then default; empty variables count as unset) and the variables of Microsoft's emulator that are still
passed. Does not know what the settings do: it returns checked values, or raises a `ConfigError` with one line of text.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import field, replace
from enum import StrEnum
from pathlib import Path
from typing import Final, NamedTuple

from .broker.access import DEFAULT_KEY, DEFAULT_KEY_NAME, DEFAULT_SHARED_KEY
from .broker.directory import KnownIdentity
from .broker.errors import BrokerError
from .broker.keys import ALL_RIGHTS, SharedKey
from .broker.lazy_dataclass import dataclass
from .broker.model.descriptions import QueueDescription, Topology
from .broker.model.profiles import PREMIUM_PARTITION_COUNTS, Limits, Profile, defaults_of, limits_for
from .broker.names import NamespaceName
from .broker.roles import Role, RoleAssignment
from .options import (
    HOST,
    HTTP_PORT,
    OTLP,
    Option,
    Values,
    file_path,
    names,
    non_empty,
    option_with_source,
    port,
    ports,
    read_option,
    read_options,
    switch,
    variables_of_process,
    whole,
)
from .options import ConfigError as ConfigError
from .storage.contract import Durability as Durability

MOUNTED_CONFIG_FILE: Final = Path("/ServiceBus_Emulator/ConfigFiles/Config.json")
"""The path of Config.json in Microsoft's emulator; used if it exists and no other file is given."""

MICROSOFT_ONLY_VARIABLES: Final = ("ACCEPT_EULA", "SQL_SERVER", "MSSQL_SA_PASSWORD", "SQL_WAIT_INTERVAL")
"""Variables of Microsoft's emulator that are ignored here, so that its compose files work."""

STORY_EVENTS_A_SECOND: Final = 5_000
"""Of single messages, kept by `serve` unasked: more than a test or a person makes, so that those have all. All events
of 40,000 messages a second took 11 to 25 % of the processor time of a send (`bench/compare.py`, window 1000)."""
JSON_VARIABLE: Final = "EMUBUS_CONFIG_JSON"
"""The text of a Config.json: a CI service starts before the checkout, so there is no file to mount."""

FAILPOINT_NAMES: Final = ("batch-applied", "commit-started", "committed", "effects-released")


class Auth(StrEnum):
    """Whether tokens and keys are verified."""

    NONE = "none"
    SAS = "sas"
    RBAC = "rbac"
    """As `sas`, and the token of an identity opens what its roles give."""


class Tls(StrEnum):
    """The certificate of the server unless files are given: none, or one of its own development CA."""

    OFF = "off"
    DEV = "dev"


class LogFormat(StrEnum):
    """Format of log lines: text, or one JSON object per line."""

    CONSOLE = "console"
    JSON = "json"


class LogLevel(StrEnum):
    """The least important lines that are logged."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


@dataclass(frozen=True, slots=True)
class Failpoint:
    """For durability tests: kill this process (SIGKILL) the `occurrence`-th time that step `name` is reached."""

    name: str
    occurrence: int


@dataclass(frozen=True, slots=True)
class NamespaceConfig:
    """Another namespace than the first. Without `keys` it has those of every new one (`Config.new_keys`)."""

    topology: Topology
    limits: Limits
    keys: tuple[SharedKey, ...] = ()
    port: int | None = None
    """A port of its own, 0 for a free one."""
    is_of_file: bool = False
    """Whether its entities are those of a Config.json, which are made again at each start."""
    identities: tuple[KnownIdentity, ...] = ()
    roles: tuple[RoleAssignment, ...] = ()

    @property
    def name(self) -> str:
        return self.topology.namespace


@dataclass(frozen=True, slots=True)
class Config:
    """All settings of one server. `data_dir` is None exactly if `durability` is `none`."""

    topology: Topology
    limits: Limits
    config_file: Path | None = None
    """The file that the entities are from; None where they are from elsewhere, though a file may be there."""
    entities_from: str | None = None
    """What the entities are from, for people; None for the default queue."""
    made_once_from: str | None = None
    """The option or variable whose entities are made in a new data folder only: it has text, and no file."""
    data_dir: Path | None = None
    fresh: bool = False
    """Whether to delete the entities and messages in the data folder first."""
    durability: Durability = Durability.SECOND
    host: str = "127.0.0.1"
    amqp_port: int = 5672
    http_port: int = 5300
    auth: Auth = Auth.NONE
    keys: tuple[SharedKey, ...] = ()
    identities: tuple[KnownIdentity, ...] = ()
    roles: tuple[RoleAssignment, ...] = ()
    tls: Tls = Tls.OFF
    tls_dir: Path = Path("emubus-data")
    """The folder of the development CA: the data folder, also for a server in memory."""
    tls_files: tuple[Path, Path] | None = None
    """Certificate and key of the user."""
    more_ports: tuple[int, ...] = ()
    log_format: LogFormat = LogFormat.CONSOLE
    log_level: LogLevel = LogLevel.INFO
    failpoint: Failpoint | None = None
    allowed_hosts: tuple[str, ...] = ()
    """Host names of this server that browsers may use, besides those that only its own machines have."""
    ready_file: Path | None = None
    """Where ports and connection strings are written as JSON once the server is ready."""
    conditions: tuple[str, ...] = ()
    """The conditions that are on from the start."""
    seed: int = 0
    story: bool = False
    """Whether events of messages are kept from the start; `serve` keeps them without `--no-story`."""
    story_a_second: int | None = None
    """How many of them in a second at most, of single messages; None: all."""
    service_only: bool = False
    """Whether `$management` answers the service's operations only."""
    otlp: str | None = None
    """The OpenTelemetry collector that gets traces and metrics."""
    more_namespaces: tuple[NamespaceConfig, ...] = ()
    """The namespaces besides the first, which the settings above are of."""
    new_keys: tuple[SharedKey, ...] = (DEFAULT_SHARED_KEY,)
    """The keys of a namespace that is given none."""
    notes: tuple[str, ...] = ()
    """Notes for the log at the start, one line each."""
    warnings: tuple[str, ...] = ()
    """As `notes`, of what people will miss: properties without effect, a configuration that is not used."""
    set_by: Mapping[str, str] = field(default_factory=dict[str, str], compare=False)
    """What has set each option, by its name: its flag, or a variable."""

    def said(self, name: str) -> str:
        """How people know an option: by the variable that sets it, else by its flag."""
        return self.set_by.get(name, OPTIONS_BY_NAME[name].flag)

    @property
    def gives_tokens_to_all(self) -> bool:
        """Whether a token opens nothing that everybody could not open: it isn't verified, or everybody knows a key."""
        return self.auth is Auth.NONE or any(each.is_known_root for each in self.keys)


# ---------------------------------------------------------------- the options


def _parse_partitions(text: str) -> int | None:
    if text == "none":
        return None
    if text not in map(str, PREMIUM_PARTITION_COUNTS):
        raise ValueError(f"none, {', '.join(map(str, PREMIUM_PARTITION_COUNTS))}")
    return int(text)


def _parse_failpoint(text: str) -> Failpoint:
    name, _, occurrence = text.partition(":")
    if name not in FAILPOINT_NAMES or not (occurrence.isascii() and occurrence.isdecimal() and int(occurrence)):
        raise ValueError(f"NAME:N with a NAME of {', '.join(FAILPOINT_NAMES)} and an N of 1 or more")
    return Failpoint(name, int(occurrence))


def _parse_roles(text: str) -> tuple[RoleAssignment, ...]:
    found = []
    for part in text.split(","):
        client, _, rest = part.strip().partition(":")
        role, _, entity = rest.partition(":")
        try:
            found.append(RoleAssignment.parse(client, role, entity))
        except BrokerError as error:
            raise ValueError(
                f"CLIENT:ROLE or CLIENT:ROLE:ENTITY, separated by commas; in {part.strip()!r} {error.description}"
            ) from None
    return tuple(found)


def _suggest_known(text: str, known: Iterable[str], cutoff: float) -> str:
    from difflib import get_close_matches  # only for a mistake

    close = get_close_matches(text, list(known), n=1, cutoff=cutoff)
    return f"; did you mean {close[0]}?" if close else ""


def _one_of(kind: type[StrEnum]) -> Callable[[str], StrEnum]:
    def parse(text: str) -> StrEnum:
        if text not in list(kind):
            raise ValueError(f"{', '.join(kind)}{_suggest_known(text, kind, 0.6)}")
        return kind(text)

    return parse


class AskedNamespace(NamedTuple):
    """A namespace as `--namespace` asks for it."""

    name: NamespaceName
    profile: Profile | None
    port: int | None


def _parse_namespaces(text: str) -> tuple[AskedNamespace, ...]:
    found: list[AskedNamespace] = []
    for each in text.split(","):
        rest, at, port_text = each.strip().partition("@")
        name, colon, profile = rest.partition(":")
        try:
            named = NamespaceName(name)
            limits = _one_of(Profile)(profile) if colon else None
            own_port = port(port_text) if at else None
        except BrokerError as error:
            raise ValueError(f"NAME, NAME:PROFILE, NAME@PORT or NAME:PROFILE@PORT. {error.description}") from None
        except ValueError as error:
            raise ValueError(f"NAME, NAME:PROFILE, NAME@PORT or NAME:PROFILE@PORT with {error}") from None
        if named.key in (other.name.key for other in found):
            raise ValueError(f"each name once; {name} is there twice")
        found.append(AskedNamespace(named, None if limits is None else Profile(limits), own_port))
    return tuple(found)


OPTIONS: Final[tuple[Option[object], ...]] = (
    Option(
        "config",
        file_path,
        "FILE",
        "Config.json with the entities to start with (Microsoft's format and more); "
        f"default: {MOUNTED_CONFIG_FILE} if there is one, else one queue named queue.1",
        brief="entities to start with (Microsoft's Config.json)",
    ),
    Option(
        "queues",
        non_empty,
        "LIST",
        "queues instead of a file, such as a,b?sessions&partitioned,c?duplicates",
        brief="queues instead, such as a,b?sessions&partitioned",
    ),
    Option(
        "data",
        file_path,
        "DIR",
        "folder for entities and messages",
        "./emubus-data",
        brief="folder for entities and messages (emubus-data)",
    ),
    Option(
        "fresh",
        switch,
        "yes|no",
        "delete the entities and messages in the data folder first; snapshots and the development CA stay",
        is_switch=True,
        brief="delete entities and messages in the folder first",
    ),
    HOST,
    Option(
        "amqp_port",
        port,
        "PORT",
        "port for AMQP, 0 for a free one",
        "5672",
        brief="port for AMQP; 0: a free one (5672)",
    ),
    HTTP_PORT,
    Option(
        "durability",
        _one_of(Durability),
        "LEVEL",
        "what acknowledged messages survive: kill -9, and a crash of the machine but for the last second (second); all "
        "of both (full); kill -9 alone (process); nothing, they are in memory (none)",
        Durability.SECOND,
        brief="second (default), full, process or none (in memory)",
        values=tuple(Durability),
    ),
    Option(
        "profile",
        _one_of(Profile),
        "NAME",
        "limits and defaults to use",
        Profile.STANDARD,
        brief="standard (default), premium, ms-emulator, relaxed",
        values=tuple(Profile),
    ),
    Option(
        "namespace",
        _parse_namespaces,
        "NAME",
        "a namespace, with its profile and a port of its own; may be repeated. Clients reach it as NAME.localhost. "
        "Without a Config.json the first one named is the server's first, which all other host names mean",
        brief="a namespace: NAME[:PROFILE][@PORT]; repeatable",
        is_list=True,
    ),
    Option(
        "premium_partitions",
        _parse_partitions,
        "N",
        "with --profile premium: number of partitions of the namespace; none: not partitioned",
        "none",
        brief="of a premium namespace: none (default), 1, 2, 4",
        is_hidden=True,
    ),
    Option(
        "auth",
        _one_of(Auth),
        "NAME",
        "verify shared access signatures and tokens of identities (sas), ask identities for their roles, too (rbac), "
        "or accept every client (none)",
        Auth.NONE,
        brief="none (default); sas: verify; rbac: --roles, too",
        values=tuple(Auth),
    ),
    Option(
        "roles",
        _parse_roles,
        "LIST",
        "with --auth rbac: roles of identities, CLIENT:ROLE or CLIENT:ROLE:ENTITY, separated by commas; a ROLE is "
        f"{', '.join(each.short for each in Role)}",
        is_hidden=True,
    ),
    Option(
        "sas_key",
        non_empty,
        "KEY",
        f"with --auth sas: the key of {DEFAULT_KEY_NAME}; default: as in Config.json, else {DEFAULT_KEY}",
        is_secret=True,
        brief="with --auth sas: the root key",
    ),
    Option(
        "tls",
        _one_of(Tls),
        "NAME",
        "also accept TLS, on every port; dev: with a certificate of a development CA in the data folder",
        Tls.OFF,
        brief="off (default); dev: also accept TLS",
        values=tuple(Tls),
    ),
    Option(
        "tls_cert",
        file_path,
        "FILE",
        "also accept TLS, with this certificate (PEM, with its chain)",
        brief="a certificate (PEM) for TLS; --tls-key: its key",
    ),
    Option("tls_key", file_path, "FILE", "the certificate's key (PEM)", is_hidden=True),
    Option(
        "tls_port",
        ports,
        "PORT,…",
        "additional ports, for clients with a fixed one: 443 for Java's admin client, 5671 for AMQP over TLS",
        brief="additional ports, such as 443,5671",
    ),
    Option("allowed_host", names, "NAME,…", "names by which browsers may use it without --auth sas", is_hidden=True),
    Option(
        "ready_file",
        file_path,
        "FILE",
        "write ports and connection strings to this file as JSON once ready",
        brief="write ports and connection strings to it as JSON",
    ),
    Option(
        "log_format",
        _one_of(LogFormat),
        "NAME",
        "log lines as text or JSON",
        LogFormat.CONSOLE,
        brief="console (default) or json",
        values=tuple(LogFormat),
    ),
    Option(
        "log_level",
        _one_of(LogLevel),
        "NAME",
        "lowest level to log",
        LogLevel.INFO,
        brief="debug, info (default), warning, error",
        values=tuple(LogLevel),
    ),
    Option("conditions", names, "NAME,…", "conditions at the start (docs/CONDITIONS.md); --seed"),
    Option(
        "story",
        switch,
        "yes|no",
        "keep no events of messages; else emubus trace and the page's Story have the last 50,000, of 5,000 a second",
        "yes",
        is_switch=True,
        brief="keep no events of messages for emubus trace",
    ),
    Option(
        "service_only",
        switch,
        "yes|no",
        "answer no operation of $management that the service does not have, as for the Spark source",
        is_switch=True,
        is_hidden=True,
    ),
    OTLP,
    Option("seed", whole, "N", "with --conditions: the seed of their chance (0)", "0", is_hidden=True),
    Option(
        "failpoint",
        _parse_failpoint,
        "NAME:N",
        "for tests: kill the process (SIGKILL) the N-th time that this step of a commit is reached: "
        f"{', '.join(FAILPOINT_NAMES)}",
        is_hidden=True,
    ),
)
PROFILE_IF_GIVEN: Final = Option("profile", _one_of(Profile), "NAME", "the profile, without a default")
OPTIONS_BY_NAME: Final[Mapping[str, Option[object]]] = {option.name: option for option in OPTIONS}


# ---------------------------------------------------------------- reading them


def load_config(arguments: Mapping[str, str | None], environment: Mapping[str, str] | None = None) -> Config:
    """The configuration from command line (texts by option name) and environment.

    An `environment` of None is the process's own. ConfigError for an invalid setting.
    """
    variables = variables_of_process() if environment is None else environment
    values = read_options(OPTIONS, arguments, variables)
    is_given = read_option(PROFILE_IF_GIVEN, arguments, variables) is not None
    set_by = {option.name: option_with_source(option, arguments, variables)[0] for option in OPTIONS}
    partitions, partitions_by = values.maybe("premium_partitions", int), set_by["premium_partitions"]
    limits = limits_of(values.of("profile", Profile), partitions, partitions_by)
    asked: tuple[AskedNamespace, ...] = values.maybe("namespace", tuple) or ()
    queues, inline, named = values.maybe("queues", str), variables.get(JSON_VARIABLE), values.maybe("config", Path)
    if not (named or inline or (queues is None and _is_there(MOUNTED_CONFIG_FILE))) and asked:
        first, *others = asked
        asked = tuple(others)
        limits = limits if first.profile is None else limits_of(first.profile, partitions, partitions_by)
    else:
        first = None
    found = _entities(set_by, queues, inline, named, limits, not is_given)
    if first is not None:
        if first.port is not None:
            told = f"{set_by['namespace']} {first.name} is the first, which has --amqp-port"
            raise ConfigError(f"{told}: leave out @{first.port}")
        found = found._replace(topology=replace(found.topology, namespace=str(first.name)))
    durability, data_dir = values.of("durability", Durability), values.of("data", Path)
    if durability is not Durability.NONE and data_dir.exists() and not data_dir.is_dir():
        raise ConfigError(f"{set_by['data']} is {data_dir}, a file; name a folder, which may be new")
    fresh = bool(values["fresh"])
    if fresh and durability is Durability.NONE:
        none = f"{set_by['durability']} none"
        raise ConfigError(f"{set_by['fresh']} empties the data folder, but {none} has no data folder: leave one out")
    _refuse_equal_ports(values, set_by, asked)
    return Config(
        topology=found.topology,
        limits=found.limits or limits,
        config_file=found.file,
        entities_from=found.source,
        made_once_from=found.made_once_from,
        data_dir=None if durability is Durability.NONE else data_dir,
        fresh=fresh,
        durability=durability,
        host=values.of("host", str),
        amqp_port=values.of("amqp_port", int),
        http_port=values.of("http_port", int),
        auth=values.of("auth", Auth),
        keys=_keys_with_default(found.keys, values.maybe("sas_key", str)),
        identities=found.identities,
        roles=(*found.roles, *(values.maybe("roles", tuple) or ())),
        tls=values.of("tls", Tls),
        tls_dir=data_dir,
        tls_files=_tls_files(values, set_by),
        more_ports=values.maybe("tls_port", tuple) or (),
        log_format=values.of("log_format", LogFormat),
        log_level=values.of("log_level", LogLevel),
        failpoint=values.maybe("failpoint", Failpoint),
        allowed_hosts=values.maybe("allowed_host", tuple) or (),
        ready_file=values.maybe("ready_file", Path),
        conditions=values.maybe("conditions", tuple) or (),
        seed=values.of("seed", int),
        story=bool(values["story"]),
        story_a_second=STORY_EVENTS_A_SECOND,
        service_only=bool(values["service_only"]),
        otlp=values.maybe("otlp", str),
        more_namespaces=_further_namespaces(found, asked, limits, values.maybe("sas_key", str), set_by["namespace"]),
        new_keys=_keys_with_default((), values.maybe("sas_key", str)),
        notes=tuple(_notes_on_variables(variables)),
        warnings=(*found.warnings, *_options_without_effect(values, arguments, variables)),
        set_by=set_by,
    )


def _refuse_equal_ports(values: Values, set_by: Mapping[str, str], asked: Iterable[AskedNamespace]) -> None:
    """ConfigError for a port that two options take, or one takes twice."""
    taken = [(set_by[name], values.of(name, int)) for name in ("amqp_port", "http_port")]
    taken += [(set_by["tls_port"], each) for each in values.maybe("tls_port", tuple) or ()]
    taken += [(f"{set_by['namespace']} {each.name}", each.port) for each in asked if each.port is not None]
    by: dict[int, str] = {}
    for what, number in taken:
        if number != 0 and number in by:
            both = f"{what} has port {number} twice" if by[number] == what else f"{by[number]} and {what} are {number}"
            raise ConfigError(f"{both}: give each a port of its own, or 0 for a free one")
        by[number] = what


def _options_without_effect(
    values: Values, arguments: Mapping[str, str | None], variables: Mapping[str, str]
) -> Iterator[str]:
    """A line for each setting that another one leaves without an effect."""
    if values["tls_port"] is not None and values.of("tls", Tls) is Tls.OFF and values["tls_cert"] is None:
        flag, text = option_with_source(OPTIONS_BY_NAME["tls_port"], arguments, variables)
        yield f"{flag} {text}: without --tls dev or --tls-cert these ports accept plain connections only"
    if values["sas_key"] is not None and values.of("auth", Auth) is Auth.NONE:
        flag, _ = option_with_source(OPTIONS_BY_NAME["sas_key"], arguments, variables)
        yield f"{flag} has no effect: every key is accepted; --auth sas verifies it"
    if not values["conditions"]:
        flag, text = option_with_source(OPTIONS_BY_NAME["seed"], arguments, variables)
        if text is not None:
            remedy = "give --conditions, too; `emubus condition begin` has a --seed of its own"
            yield f"{flag} {text} has no effect: no condition begins at the start; {remedy}"
    if values["roles"] is not None and values.of("auth", Auth) is not Auth.RBAC:
        flag, _ = option_with_source(OPTIONS_BY_NAME["roles"], arguments, variables)
        yield f"{flag} has no effect: identities are not asked for their roles; --auth rbac does"


def limits_of(profile: Profile, partitions: int | None, flag: str = "--premium-partitions") -> Limits:
    """The limits of `profile` and `premium_partitions`, which `flag` has set. ConfigError if they contradict."""
    if partitions is not None and profile is not Profile.PREMIUM:
        raise ConfigError(f"{flag} {partitions} needs the profile premium; the profile is {profile}")
    return limits_for(profile, partitions)


class Entities(NamedTuple):
    """The entities and keys to start with, and what was passed over in their file."""

    topology: Topology
    keys: tuple[SharedKey, ...] = ()
    warnings: tuple[str, ...] = ()
    file: Path | None = None
    source: str | None = None
    made_once_from: str | None = None
    limits: Limits | None = None
    """Those of the profile that the file names for its first namespace."""
    more: tuple[NamespaceConfig, ...] = ()
    identities: tuple[KnownIdentity, ...] = ()
    roles: tuple[RoleAssignment, ...] = ()


def _further_namespaces(
    found: Entities, asked: Iterable[AskedNamespace], limits: Limits, sas_key: str | None, flag: str
) -> tuple[NamespaceConfig, ...]:
    """The namespaces besides the first: those of the file, and those of `--namespace`. ConfigError."""
    more = {each.name.lower(): replace(each, keys=_keys_with_default(each.keys, sas_key)) for each in found.more}
    for each in asked:
        if each.name.key == found.topology.namespace.lower():
            raise ConfigError(f"{flag} {each.name} is the first of the Config.json: set its Profile there")
        before = more.get(each.name.key)
        if before is None:
            own = limits if each.profile is None else limits_of(each.profile, None)
            more[each.name.key] = NamespaceConfig(Topology(str(each.name)), own, port=each.port)
        elif each.profile is not None:
            raise ConfigError(f"{flag} {each.name} is in the Config.json: set its Profile there")
        else:
            more[each.name.key] = replace(before, port=before.port if each.port is None else each.port)
    return tuple(more.values())


WARNINGS_SHOWN: Final = 50
"""Warnings of a file at the start; `emubus config check` prints all."""


def _entities(
    set_by: Mapping[str, str],
    queues: str | None,
    inline: str | None,
    named: Path | None,
    limits: Limits,
    takes_profile: bool,
) -> Entities:
    """From the list of queues, EMUBUS_CONFIG_JSON, the file that is named or mounted, else the default queue.

    ConfigError for two of them, and for a mounted configuration that can't be used: a server without its entities
    looks healthy. One that is mounted beside another source is a warning.
    """
    given = {
        set_by["config"]: named is not None,
        JSON_VARIABLE: bool(inline),
        set_by["queues"]: queues is not None,
    }
    chosen = [name for name, is_given in given.items() if is_given]
    if len(chosen) > 1:
        raise ConfigError(f"{' and '.join(chosen)} exclude each other: give one of them")
    if not chosen:
        return _mounted_entities(limits, takes_profile)
    found = _with_source(_entities_of_source(chosen[0], queues, inline, named, limits, takes_profile), chosen[0])
    if _is_there(MOUNTED_CONFIG_FILE) and named != MOUNTED_CONFIG_FILE:
        note = f"{MOUNTED_CONFIG_FILE} is not used: the entities are from {found.source}"
        return found._replace(warnings=(note, *found.warnings))
    return found


def _with_source(found: Entities, option: str) -> Entities:
    """Name the source as people know it: the file, or the option without one."""
    if found.file is None:
        return found._replace(source=option, made_once_from=option)
    return found._replace(source=str(found.file))


def _is_there(path: Path) -> bool:
    """Whether the path names anything, a link to nothing included."""
    try:
        path.lstat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError:
        return True
    return True


def _mounted_entities(limits: Limits, takes_profile: bool) -> Entities:
    """The entities of the file at the path of Microsoft's emulator, else the default queue.

    ConfigError where something is there and can't be used: Docker makes a folder of a bind mount whose file is missing,
    and a mounted folder may have the file under another name.
    """
    path, folder = MOUNTED_CONFIG_FILE, MOUNTED_CONFIG_FILE.parent
    if _is_there(path):
        return _with_source(_read_entities(path, limits, takes_profile), str(path))
    default = Entities(Topology(queues=(_default_queue(limits),)))
    try:
        others = sorted(each.name for each in folder.iterdir())
    except FileNotFoundError:
        if _is_there(folder):
            raise ConfigError(f"{folder} is a link to nothing: mount the folder that it names, or remove it") from None
        return default
    except OSError as error:
        raise ConfigError(f"{folder} can't be read: {error.strerror}; {path} may be in it") from error
    if not others:
        return default._replace(source=f"none: {folder} is empty")
    like = next((name for name in others if name.lower() == path.name.lower()), None)
    shown = ", ".join(others[:5]) + (", …" if len(others) > 5 else "")
    remedy = f"rename {like} to {path.name}" if like else f"name the file {path.name}"
    raise ConfigError(f"{folder} has no {path.name}, but {shown}: {remedy}, or give --config FILE or --queues LIST")


def _entities_of_source(
    flag: str, queues: str | None, inline: str | None, named: Path | None, limits: Limits, takes_profile: bool
) -> Entities:
    """The entities of the one source that is given, which `flag` names."""
    if queues is not None:
        from .config_file.queue_list import queues_in  # only for a list

        try:
            return Entities(Topology(queues=tuple(queues_in(queues, _default_queue(limits), limits))))
        except ValueError as error:
            raise ConfigError(f"{flag} {error}") from error
    if inline:
        return _read_entities(inline, limits, takes_profile)
    assert named is not None
    try:
        return _read_entities(named, limits, takes_profile)
    except ConfigError as error:
        if flag == OPTIONS_BY_NAME["config"].flag:
            raise
        raise ConfigError(f"{error} ({flag} names the file)") from error  # its name is not on the command line


def _read_entities(source: Path | str, limits: Limits, takes_profile: bool) -> Entities:
    """The entities of a file or of a text."""
    # Here and not above, because a start without a file needs neither the schema nor the grammar of SQL filters.
    from .config_file.cursor import ConfigFileError
    from .config_file.reading import parse_config, read_config_file

    try:
        if isinstance(source, str):
            found = parse_config(source, limits, JSON_VARIABLE, takes_profile=takes_profile)
        else:
            found = read_config_file(source, limits, takes_profile=takes_profile)
    except ConfigFileError as error:
        raise ConfigError("\n".join(map(str, error.problems))) from error
    others = (
        NamespaceConfig(each.topology, each.limits or limits, each.keys, each.port, True, each.identities, each.roles)
        for each in found.more
    )
    file = source if isinstance(source, Path) else None
    warnings = [*map(str, found.warnings[:WARNINGS_SHOWN])]
    if len(found.warnings) > WARNINGS_SHOWN:
        more = len(found.warnings) - WARNINGS_SHOWN
        warnings.append(f"{file or JSON_VARIABLE} has {more} more warnings: emubus config check prints all")
    return Entities(
        found.topology,
        found.keys,
        tuple(warnings),
        file,
        limits=found.limits,
        more=tuple(others),
        identities=found.identities,
        roles=found.roles,
    )


def _default_queue(limits: Limits) -> QueueDescription:
    """The queue of Microsoft's sample, so that a first try needs no file."""
    return QueueDescription("queue.1", **defaults_of(QueueDescription, limits))


def _keys_with_default(from_file: tuple[SharedKey, ...], sas_key: str | None) -> tuple[SharedKey, ...]:
    """The keys of the file, and the root key: from the setting, the file, or the default."""
    is_root = [key.name == DEFAULT_KEY_NAME and key.scope is None for key in from_file]
    if not any(is_root):
        return (SharedKey(DEFAULT_KEY_NAME, sas_key or DEFAULT_KEY, ALL_RIGHTS), *from_file)
    if sas_key is None:
        return from_file
    root = SharedKey(DEFAULT_KEY_NAME, sas_key, ALL_RIGHTS)
    return tuple(
        replace(root, rights=key.rights) if here else key for key, here in zip(from_file, is_root, strict=True)
    )


def _tls_files(values: Values, set_by: Mapping[str, str]) -> tuple[Path, Path] | None:
    certificate, key = values.maybe("tls_cert", Path), values.maybe("tls_key", Path)
    if (certificate is None) != (key is None):
        given, missing = ("tls_cert", "tls_key") if key is None else ("tls_key", "tls_cert")
        told = f"{set_by[given]} is {certificate or key}; --tls-cert and --tls-key go together"
        raise ConfigError(f"{told}: give {OPTIONS_BY_NAME[missing].flag}, too")
    if certificate is None or key is None:
        return None
    if values.of("tls", Tls) is Tls.DEV:
        both = f"{set_by['tls_cert']} and {set_by['tls_key']}"
        raise ConfigError(f"{set_by['tls']} dev makes its own certificate: leave out {both}")
    return certificate, key


def _notes_on_variables(variables: Mapping[str, str]) -> list[str]:
    notes: list[str] = []
    unused = [name for name in MICROSOFT_ONLY_VARIABLES if variables.get(name)]
    if unused:
        notes.append(f"{', '.join(unused)}: ignored; emubus needs no SQL Server and no licence")
    known = {JSON_VARIABLE, *(variable for option in OPTIONS for variable in option.variables)}
    for name in sorted(variables):
        if name.startswith("EMUBUS_") and name not in known:
            suggestion = _suggest_known(name, known, 0.85)
            if suggestion:
                notes.append(f"{name} is not a setting of emubus{suggestion}")
    return notes
