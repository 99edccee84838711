"""The wire adapter: AMQP 1.0 as Service Bus SDKs speak it. Knows Proton and the broker's verbs, decides nothing.

How a byte travels: `server` makes a `connection` for each socket; SASL comes first (`wire/sasl`), then the exchange
of frames (`links/frame_exchange`). On the way in, `wire/frame_reader` cuts the input into whole frames,
`wire/handles` says what becomes of those that Proton can't have as they are, and `wire/link` runs Proton's events:
messages and dispositions gather in a `wire/run` per link, which goes to the broker and comes back with outcomes. On
the way out, `wire/proton_repairs` corrects Proton's frames.

Rooms, each importing only those above it (`tests/test_architecture.py`):

* `wire/` knows Proton and frames: `engine` is Proton behind readable names; `run`, `link`, `incoming_deliveries` and
  `outgoing_deliveries` are what happens once per message; `flow` is back-pressure; `outcomes` is the table of
  settlements, `clients` what SDKs of certain versions need.
* The files here but for `connection`, `server` and `server_state` are a connection's context: `link_context` is all
  that links and nodes may know of their connection, `claims` what its tokens allow, `limits` the table of limits.
* `nodes/` answers requests: `requests` is the exchange, `cbs` takes tokens, `management` has the table of operations,
  which are in `operations_…`. `jms/` is what clients of JMS ask for beyond others.
* `links/` knows the broker: `endpoints` begins and ends AMQP sessions and links, `attach` decides what a link becomes:
  `incoming` and `outgoing` for messages, `message_sessions` for those of one message session, `browsing` for copies,
  `coordinator` for transactions.
* `injection/` is what is done to connections on purpose: `faults` implements the hooks that `links/hooks` names.
* `server` makes connections; nothing else imports `connection`. Every timer is the broker's clock's.

Proton is a sans-I/O engine here (bytes in, events out, bytes out); its reactor isn't used. Delivery policy, locks and
limits of entities are the broker's: links map deliveries to lock tokens and back, nothing more (R5, R9).
"""

from .injection.faults import Faults, Target
from .limits import Limits
from .server import AmqpServer, Find

__all__ = ["AmqpServer", "Faults", "Find", "Limits", "Target"]
