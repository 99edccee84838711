"""REST messaging [http 5]: messages sent and received one request at a time.

Reading order: `texts` (types as text), `broker_properties` (the JSON of the header), `sending` (a request becomes
messages), `receiving` (waiting for one message), `received` (a message becomes an answer), `routes` (paths, verbs and
refusals). It decides no rule: keys, locks and limits are the broker's, as over AMQP (P21).
"""

from .routes import add_rest

__all__ = ["add_rest"]
