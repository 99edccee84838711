"""Reading: positions, plans, tasks, and deletion afterwards.

`batch` and `stream` are the classes that Spark calls. `stream` delegates, for each entity, to `follow` (browse and
drain: an offset is one number per partition), to `sub_queue` (dead letters: the numbers that were read) or to `claim`
(a set of deferred messages; by requests or links, `claim_by_…`); `several` joins many of them. `drain` deletes, in a
thread of its own; `drain_sign` warns of a second drain. The steps to a batch: `positions` finds the first and last
numbers of the partitions, `admission` limits the batch, `plan` cuts it into tasks, `rows` reads a task on a worker.
`polling` is what `follow` and `sub_queue` have in common. `browse` does all peeking. `identity`, `outage` and `pace`
are watched besides: is it still the same entity, is a partition out, how often to ask. `retries` and `peeks` repeat
work after transient failures. `offsets` defines what checkpoints hold.

The design rests on two facts: sequence numbers only grow, and a message below an end that was seen was visible at that
time. So a range of numbers gives the same messages at every read, except those that other consumers removed.
"""
