"""Tokens for identities, asked for as programs in Azure do: managed identities, and applications of a directory.

`managed` answers what a program asks of its machine (App Service, IMDS and their relatives), `applications` what it
asks of a directory such as Entra ID, `answers` has what both share. They decide nothing: `broker/directory.py` says who
may have a token, `broker/tokens.py` makes it.
"""

from __future__ import annotations

from typing import Final

from aiohttp import web

from ..services import Services
from .answers import Tokens
from .applications import TENANT, Applications
from .managed import APP_SERVICE, IMDS, Managed

PATHS: Final = (APP_SERVICE, IMDS)
"""Paths of managed identities, to which IMDS' clients in JavaScript add a slash."""
APPLICATION_PATHS: Final = (
    f"{TENANT}/oauth2/token",
    f"{TENANT}/oauth2/v2.0/token",
    f"{TENANT}/.well-known/openid-configuration",
    f"{TENANT}/v2.0/.well-known/openid-configuration",
    f"{TENANT}/discovery/keys",
    f"{TENANT}/discovery/v2.0/keys",
    f"{TENANT}/discovery/instance",
)
_ENDINGS: Final = tuple(each.removeprefix(TENANT) for each in APPLICATION_PATHS)


def add_identity(app: web.Application, services: Services) -> None:
    """Answer the paths of tokens."""
    tokens = Tokens(services)
    managed, applications = Managed(tokens), Applications(tokens)
    for path, answer in ((APP_SERVICE, managed.app_service), (IMDS, managed.imds)):
        for each in (path, f"{path}/"):
            app.router.add_get(each, tokens.refusing(answer), allow_head=False)
    app.router.add_post(APP_SERVICE, tokens.refusing(managed.app_service))  # Cloud Shell's form
    for path in APPLICATION_PATHS:
        if path.endswith("/token"):
            app.router.add_post(path, tokens.refusing(applications.token))
        else:
            app.router.add_get(path, tokens.refusing(applications.document), allow_head=False)


def is_of_identity(path: str) -> bool:
    """Whether a path is one of tokens: pages of other origins may not read what they answer."""
    path = path.rstrip("/")
    return path in PATHS or (path.endswith(_ENDINGS) and path.count("/") in (3, 4))
