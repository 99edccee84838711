"""Writing: rows to messages, messages to parcels, parcels to the service.

`rows` finds the sink's columns in a frame, `task` names the writing task (message ids come from it), `targets` groups
messages into parcels, one delivery each, that no service refuses for their keys or size, `routes` opens links,
`delivery` keeps parcels in flight until each has its outcome, `transaction` does so atomically, `writer` is the
interface to Spark. Nothing here knows frames (`wire`) or the encoding of a message (`codec`).
"""
