"""AMQP 1.0 as bytes, for broker, adapters and Spark connector [AMQP 1, 2.3, 3.2]. Imports nothing of emubus.

Read `types` first (which Python value stands for which AMQP type), then `decode`, `encode` and `skip` (single values),
`sections` (where the parts of a message lie, and how to put a new piece into one), `frames` (the walk over frames) and
`decimals` (their text). Bytes that are no AMQP raise `errors.DecodeError`; who answers a client makes a refusal of it
(`broker.errors.decode_refusal`). Everything is a pure function; nothing has an owner.
"""
