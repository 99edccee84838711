"""Writing: rows to messages, messages to parcels, parcels to the service.

`rows` finds the sink's columns in a frame, `task` says who writes (message ids come from it), `targets` puts messages
in parcels, one delivery each, that no service refuses for their keys or size, `routes` lends connections, `delivery`
keeps parcels in flight until each has its outcome, `transaction` does so all or nothing, `writer` is what Spark calls.
Nothing here knows the wire's frames (`wire`) or a message's encoding (`codec`).
"""
