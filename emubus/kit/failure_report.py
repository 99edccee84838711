"""What a failed test says of the broker: its answer to `GET /emubus/v1/report`, whose text is the section *emubus*.

Does not know pytest (`pytest_plugin.py`), which facts explain a failure (`web/control/report.py`), nor where the emubus
runs.
"""

from __future__ import annotations

from ..broker.errors import BrokerError
from .verbs import Verbs


def failure_report(emubus: Verbs) -> str:
    """Sections of lines, "" if there is nothing to say; one line if the emubus does not answer."""
    try:
        return emubus._control("GET", "/report").text("text")
    except (BrokerError, OSError) as error:
        return f"The emubus can't be asked what happened: {error}"
