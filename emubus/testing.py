"""The test kit, as tests import it: `EmubusServer` in the test process, `RemoteEmubus` elsewhere, and their types.

The parts are in `kit/`.
"""

from __future__ import annotations

from .broker.admin.overview import Route
from .broker.api import OutageKind
from .broker.directory import KnownIdentity
from .broker.errors import BrokerError, Condition
from .broker.keys import Right, SharedKey
from .broker.model.catalog import Description
from .broker.model.descriptions import (
    AuthorizationRule,
    CorrelationFilter,
    EntityStatus,
    FalseFilter,
    QueueDescription,
    RuleDescription,
    SqlFilter,
    SubscriptionDescription,
    TopicDescription,
    TrueFilter,
)
from .broker.model.profiles import Profile
from .broker.roles import Principal, Role, RoleAssignment
from .conditions.faults import Fault, FaultKind, FaultOperation
from .config import Auth, ConfigError, Durability
from .kit.condition_names import ConditionName
from .kit.conditions import ConditionReport
from .kit.in_process import EmubusNamespace, EmubusServer
from .kit.manual_clock import ManualClock
from .kit.remote import RemoteEmubus
from .kit.values import MessageCounts, MessageSession, PeekedMessage, RefusedCall, StoryEvent, SubscriptionVerdict
from .web.services import Snapshot

Emubus = EmubusServer | EmubusNamespace | RemoteEmubus
"""Any of them: all have the same verbs."""

__all__ = [
    "Auth",
    "AuthorizationRule",
    "BrokerError",
    "Condition",
    "ConditionName",
    "ConditionReport",
    "ConfigError",
    "CorrelationFilter",
    "Description",
    "Durability",
    "Emubus",
    "EmubusNamespace",
    "EmubusServer",
    "EntityStatus",
    "FalseFilter",
    "Fault",
    "FaultKind",
    "FaultOperation",
    "KnownIdentity",
    "ManualClock",
    "MessageCounts",
    "MessageSession",
    "OutageKind",
    "PeekedMessage",
    "Principal",
    "Profile",
    "QueueDescription",
    "RefusedCall",
    "RemoteEmubus",
    "Right",
    "Role",
    "RoleAssignment",
    "Route",
    "RuleDescription",
    "SharedKey",
    "Snapshot",
    "SqlFilter",
    "StoryEvent",
    "SubscriptionDescription",
    "SubscriptionVerdict",
    "TopicDescription",
    "TrueFilter",
]
