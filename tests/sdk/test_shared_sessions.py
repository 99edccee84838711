"""Message sessions whose lock others may take over: non-exclusive sessions."""

from __future__ import annotations

import pytest

from .client import Sdk
from .conftest import MakeQueue
from .driver import SdkError
from .features import clients_with, partitioned_only

pytestmark = [pytest.mark.sdk, clients_with("shared_sessions")]


@partitioned_only
def test_standard_declines_in_the_way_that_the_sdk_knows(sdk: Sdk, make_queue: MakeQueue) -> None:
    queue = make_queue(requires_session=True)
    with pytest.raises(SdkError) as declined:
        sdk.accept_session(queue, "s", shared=True)
    assert (declined.value.kind, declined.value.type) == ("other", "NotSupportedException")
    sdk.send(queue, {"body": "x", "session_id": "s"})
    assert sdk.accept_session(queue, "s").receive_one().body == "x"
