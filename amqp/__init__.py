"""The wire adapter: AMQP 1.0 as Service Bus SDKs speak it. Knows Proton and the broker's verbs, decides nothing.

How a byte travels: `server` makes a `connection` for each socket; SASL comes first (`wire/sasl`), then the AMQP layer
(`links/amqp_layer`). On the way in, `wire/frames` cuts the input into whole frames and finds what Proton doesn't show,
`wire/handles` rules on handles and names, `links/frame_input` feeds Proton and runs its events. On the way out,
`wire/flow_rewriter`, `wire/delivery_ids` and the padder in `wire/frames` correct Proton's frames.

* `wire/` knows Proton and frames: `engine` is Proton behind readable names; `link`, `incoming_deliveries` and
  `outgoing_deliveries` are what happens once per message; `flow` is back-pressure.
* `links/` knows the broker: `endpoints` begins and ends AMQP sessions and links, `attach` decides what a link becomes:
  `incoming` and `outgoing` for messages, `message_sessions` for those of one message session, `browsing` for copies,
  `coordinator` for transactions. `outcomes` is the table of settlements.
* `nodes/` answers requests: `requests` is the exchange, `cbs` takes tokens, `claims` is what they allow, `management`
  has the table of operations, which are in `operations_…`.

Each connection is a `link_context`: all that its links and nodes may know of it. `limits` is the table of limits,
`clients` what SDKs of certain versions need, `faults` what is done to connections on purpose. `wire/` imports neither
`links/` nor `nodes/`; nothing but `server` imports `connection`; every timer is the broker's clock's.

Proton is a sans-I/O engine here (bytes in, events out, bytes out); its reactor isn't used. Delivery policy, locks and
limits of entities are the broker's: links map deliveries to lock tokens and back, nothing more (R5, R9).
"""

from .faults import Faults, Target
from .limits import Limits
from .server import AmqpServer

__all__ = ["AmqpServer", "Faults", "Limits", "Target"]
