"""Entities at run time: they route requests to partitions and join the answers of several partitions.

`entity` is a queue, topic or subscription; `router` chooses the partition; `dispatcher` shares messages among
receivers; `links` is what a client's link holds. `several_partitions` and `scheduling` make requests over several
stores all-or-none; `transaction(s)` collect work for one commit; `topic` finds a message's subscriptions; `forwarder`
empties outboxes. `namespace` finds entities by address.
"""
