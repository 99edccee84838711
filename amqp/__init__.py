"""The wire adapter: AMQP 1.0 as Service Bus SDKs speak it. Knows Proton and the broker's verbs, decides nothing.

How a byte travels: `face` makes a `connection`; `sasl` has the first word; `frames` cuts the input into whole frames
and notes what Proton wouldn't show, `handles` keeps the account of handles and names; `engine` is Proton behind
readable names; `fastpath` is everything that happens once per message. `endpoints` begins and ends AMQP sessions and
links, `attach` decides what a link becomes: `incoming` and `outgoing` for messages, `message_sessions` for those of
one message session, `browsing` for those that only look, `transactions` for the coordinator, `requests` for the nodes
`cbs` and `management` (whose operations are in `operations_messages`, `_sessions` and `_rules`). `clients` is what
SDKs of certain versions need, `claims` what a client may do and for how long, `outcomes` the table of settlements,
`states` the transactional ones, `limits` the table of limits, `ports` what is asked of the broker, `faults` what is
done to connections on purpose.

Proton is a sans-I/O engine here (bytes in, events out, bytes out); its reactor isn't used. Delivery policy, locks and
limits of entities are the broker's: links map deliveries to lock tokens and back, nothing more (R5, R9).
"""

from .faults import Faults, Target
from .limits import Limits
from .server import AmqpServer

__all__ = ["AmqpServer", "Faults", "Limits", "Target"]
