"""Stands in for the test tools of the SDK's repository, which no registry carries: everything is live.

Only what the tests of `azure-servicebus` use. A preparer of the suite (its `servicebus_preparer.py`) derives from
`AzureMgmtPreparer`, makes something on the server, and gives it to the test by the names of its parameters.
"""

from __future__ import annotations

import functools
import inspect
import random
import string
from collections.abc import Callable, Mapping
from typing import Any, Final

from azure.servicebus._base_handler import ServiceBusSharedKeyCredential
from azure.servicebus.aio._base_handler_async import ServiceBusSharedKeyCredential as AsyncSharedKeyCredential

from . import arm

SUPPLIED: Final = ("servicebus_", "resource_group", "location", "variables")
"""How parameters of tests begin that a preparer supplies, and pytest must not look for as fixtures."""
NAME_LENGTH: Final = 12
arm.install()

Test = Callable[..., Any]


class AzureTestError(Exception):
    """A preparer's parent is missing."""


class ReservedResourceNameError(Exception):
    """Azure keeps the name for itself; never raised here."""


class FakeResource:
    """What a suite that replays recordings gets instead of a resource."""

    def __init__(self, name: str, id: str) -> None:  # noqa: A002  # the suite's name
        self.name, self.id = name, id


class AzureRecordedTestCase:
    """Base of test classes."""

    is_live = True
    in_recording = False

    @staticmethod
    def await_prepared_test(test: Test) -> Test:
        """A coroutine of a class's tests; pytest awaits it."""
        return test


class AzureMgmtRecordedTestCase(AzureRecordedTestCase):
    """Base of test classes whose resources preparers make."""


def get_credential(*, is_async: bool = False, **_: object) -> object:
    """The root key as a credential: with it the SDK sends a token signed by the key, which the server verifies."""
    kind = AsyncSharedKeyCredential if is_async else ServiceBusSharedKeyCredential
    return kind(arm.ROOT, arm.ROOT_KEY)


def get_region_override(default: str) -> str:
    """Where resources are made."""
    return default


def nothing(*_: object, **__: object) -> None:
    """Recordings are not made, so nothing has to be kept out of them."""


set_custom_default_matcher = add_general_regex_sanitizer = nothing


def wrapped(test: Test, before: Callable[[dict[str, Any]], Mapping[str, Any]], after: Test = nothing) -> Test:
    """`test` with what `before` makes of its keywords, and `after` called with them at its end."""
    innermost = getattr(test, "innermost", test)
    known = inspect.signature(innermost).parameters
    takes_all = any(each.kind is each.VAR_KEYWORD for each in known.values())

    def keywords(given: dict[str, Any]) -> dict[str, Any]:
        all_of_them = {**given, **before(given)}
        is_last = test is innermost
        return {name: value for name, value in all_of_them.items() if takes_all or not is_last or name in known}

    if inspect.iscoroutinefunction(test):

        async def call_async(self: object, **given: Any) -> Any:
            try:
                return await test(self, **keywords(given))
            finally:
                after(given)

        return _shown(call_async, test, innermost)

    def call(self: object, **given: Any) -> Any:
        try:
            return test(self, **keywords(given))
        finally:
            after(given)

    return _shown(call, test, innermost)


def _shown(call: Test, test: Test, innermost: Test) -> Test:
    """`call` as pytest sees it: the test's name and marks, and of its parameters those that are fixtures."""
    functools.update_wrapper(call, test)
    del call.__dict__["__wrapped__"]  # pytest would look for fixtures there
    fixtures = [
        each
        for each in inspect.signature(innermost).parameters.values()
        if each.kind is each.POSITIONAL_OR_KEYWORD and each.default is each.empty and not each.name.startswith(SUPPLIED)
    ]
    signature = inspect.Signature(fixtures)
    call.__dict__.update(innermost=innermost, __signature__=signature)
    return call


class AzureMgmtPreparer:
    """Base of the suite's preparers, which are decorators of tests."""

    _made: Final[dict[object, Mapping[str, Any]]] = {}  # what is kept for tests that want the same

    def __init__(
        self, name_prefix: str = "", random_name_length: int = 24, *, random_name_enabled: bool = True, **_: object
    ) -> None:
        self.name_prefix = name_prefix
        self.random_name_length = random_name_length
        self.random_name_enabled = random_name_enabled
        self.is_live = True
        self.resource: object = None
        self.moniker = self.resource_moniker = name_prefix
        self.resource_random_name = ""
        self.test_class_instance = None
        self.cache_key: tuple[str, ...] = ()

    def set_cache(self, enabled: bool, *key: object) -> None:
        """Keep what is made, for tests whose preparers have the same key and parents."""
        self.cache_key = (type(self).__name__, *map(str, key)) if enabled else ()

    def create_mgmt_client(self, kind: Callable[[], object], **_: object) -> object:
        """The stand-in of a client of the resource manager."""
        return kind()

    def create_resource(self, name: str, **_: Any) -> Mapping[str, Any]:
        """Make the resource; its value for the test, by parameter. Preparers replace it."""
        raise AzureTestError(name)

    def remove_resource(self, name: str, **_: Any) -> None:
        """Remove what `create_resource` made. Preparers replace it."""

    def __call__(self, test: Test) -> Test:
        """The test, which then has the resource."""
        names: list[str] = []

        def before(given: dict[str, Any]) -> Mapping[str, Any]:
            parents = sorted(getattr(value, "name", "") for name, value in given.items() if name.startswith(SUPPLIED))
            key = (self.cache_key, self.name_prefix, *parents)
            if self.cache_key and key in self._made:
                return self._made[key]
            name = self._name()
            made = self.create_resource(name, **given)
            if self.cache_key:
                self._made[key] = made
            else:
                names.append(name)
            return made

        def after(given: dict[str, Any]) -> None:
            while names:
                self.remove_resource(names.pop(), **given)

        return wrapped(test, before, after)

    def _name(self) -> str:
        if not self.random_name_enabled:
            return self.resource_random_name or self.name_prefix or "resource"
        return self.name_prefix + "".join(random.choices(string.ascii_lowercase, k=NAME_LENGTH))


class _GroupPreparer(AzureMgmtPreparer):
    def create_resource(self, name: str, **_: Any) -> Mapping[str, Any]:
        return {"resource_group": FakeResource(name, name), "location": "here"}


def CachedResourceGroupPreparer(*_: object, **__: object) -> AzureMgmtPreparer:  # noqa: N802  # the suite's name
    """A resource group; the server has none."""
    return _GroupPreparer()


RandomNameResourceGroupPreparer = ResourceGroupPreparer = CachedResourceGroupPreparer


class PowerShellPreparer:
    """Gives tests what the repository's pipelines put into the environment."""

    def __init__(self, _: str, **wanted: str) -> None:
        self.wanted = wanted

    def __call__(self, test: Test) -> Test:
        """The test, which then has the values."""
        values = {
            "servicebus_connection_str": arm.connection_string(arm.ROOT, arm.ROOT_KEY),
            "servicebus_fully_qualified_namespace": arm.HOST,
            "servicebus_sas_policy": arm.ROOT,
            "servicebus_sas_key": arm.ROOT_KEY,
        }
        supplied = {name: values.get(name, default) for name, default in self.wanted.items()}
        return wrapped(test, lambda _: supplied)


def recorded_by_proxy(test: Test) -> Test:
    """The test as it is, without the proxy that records."""
    return wrapped(test, lambda _: {})
