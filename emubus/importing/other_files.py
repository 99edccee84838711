"""What a file is in which an import finds nothing of Service Bus, and what takes it.

Templates, states and settings are all JSON, and lie beside each other: a person names the neighbour, and a reader that
passes over what it does not know finds no entities in it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Final

_CHARS_MAX: Final = 1 << 20
"""A larger file is no neighbour: the remedy of its option is said then."""
REMEDIES: Final[Mapping[str, str]] = {
    "arm": "give a template with resources of Microsoft.ServiceBus",
    "terraform": "give what `terraform show -json` prints of a plan or a state with resources of Service Bus",
    "pulumi": "give what `pulumi stack export` prints of a stack with resources of Service Bus",
}
"""By the option that names the file."""


def remedy_for(path: Path, option: str) -> str:
    """What the file is and what takes it, or what the option takes."""
    if path.suffix == ".tf":
        return "it is Terraform's source; give what `terraform show -json` prints as --terraform"
    if not path.is_file():
        return REMEDIES[option]  # a pipe has been read
    try:
        with path.open(encoding="utf-8-sig") as file:
            found: object = json.loads(file.read(_CHARS_MAX))
    except (OSError, ValueError, RecursionError):
        return REMEDIES[option]
    members: dict[str, object] = found if isinstance(found, dict) else {}
    return _of_neighbour(path, option, members) or REMEDIES[option]


def _of_neighbour(path: Path, option: str, members: Mapping[str, object]) -> str:
    """What takes a file with these members, "" if they say nothing."""
    if "UserConfig" in members:
        return f"it is a Config.json; start with `emubus serve --config {path}`, or import it on the page"
    if "terraform_version" in members and "resources" in members and option != "terraform":
        return "it is Terraform's state; give what `terraform show -json` prints as --terraform"
    if "format_version" in members and option != "terraform":
        return "`terraform show -json` prints such a file; give it as --terraform"
    if "deployment" in members and option != "pulumi":
        return "`pulumi stack export` prints such a file; give it as --pulumi"
    if "deploymentparameters" in str(members.get("$schema", "")).lower():
        return "it holds parameters; give it as --parameters, and its template as --arm"
    if "resources" in members and "contentVersion" in members and option != "arm":
        return "it is an ARM template; give it as --arm"
    return ""
