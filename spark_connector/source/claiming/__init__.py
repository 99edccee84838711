"""How messages are claimed and deleted again, for `source.claim`.

`by_request` is emubus's way: one request for many messages. `by_link` is everyone's: receive with locks, then defer.
`deletion` deletes what is finished.
"""
