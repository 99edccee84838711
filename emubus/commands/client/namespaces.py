"""`emubus namespace`: list, create and delete the namespaces of a running server."""

from __future__ import annotations

from ...broker.errors import BrokerError
from ...broker.model.profiles import Profile
from ...broker.names import NamespaceName
from ...exits import EXIT_OK
from ...options import ConfigError, port
from ..declaring import Command, Parsed
from .address import add_server_options
from .api import connect
from .output import add_json, add_yes, confirm, show, table


def add_namespace(parser: Command) -> None:
    parser.argument(
        "action",
        nargs="?",
        known=["list", "create", "delete"],
        default="list",
        metavar="ACTION",
        help="list (default), create or delete",
    )
    parser.argument("name", nargs="?", metavar="NAME", help="name of the namespace")
    parser.option("--profile", known=[*Profile], metavar="NAME", help="create: its profile (that of the first)")
    parser.option("--port", metavar="PORT", help="create: a port of its own, 0 for a free one")
    add_yes(parser)
    add_json(parser)
    add_server_options(parser, names_namespace=False)
    parser.run = _namespace


def _namespace(parsed: Parsed) -> int:
    """List, make or delete; the exit code. ConfigError, CommandError."""
    if (parsed.name is None) != (parsed.action == "list"):
        raise ConfigError("create and delete need the NAME of a namespace, list has none")
    if parsed.action != "create" and (parsed.profile or parsed.port):
        raise ConfigError(f"--profile and --port go with create, not with {parsed.action}")
    at = "/namespaces" if parsed.name is None else f"/namespaces/{_name(parsed.name)}"
    wanted = {"profile": parsed.profile, "port": _port_in(parsed.port)}
    if parsed.action == "delete":
        confirm(parsed, f"Delete the namespace {parsed.name} with everything in it")
    with connect(parsed) as api:
        if parsed.action == "list":
            answer = api.get(at)
            rows = [
                [each["name"], each["profile"], each["host"], each["port"] or "", "yes" if each["is_open"] else "no"]
                for each in answer.parts("namespaces")
            ]
            show(parsed, answer, table(["NAMESPACE", "PROFILE", "HOST", "PORT", "OPEN"], rows))
            return EXIT_OK
        if parsed.action == "delete":
            show(parsed, api.call("DELETE", at), [f"deleted {parsed.name}"])
            return EXIT_OK
        answer = api.call("PUT", at, wanted)
        own = f", port {answer['port']}" if answer["port"] else ""
        show(parsed, answer, [f"created {parsed.name}: {answer['host']}{own}"])
        return EXIT_OK


def _name(text: str) -> NamespaceName:
    try:
        return NamespaceName(text)
    except BrokerError as error:
        raise ConfigError(error.description) from error


def _port_in(text: str | None) -> int | None:
    try:
        return None if text is None else port(text)
    except ValueError as error:
        raise ConfigError(f"--port is {text!r}; allowed is {error}") from error
