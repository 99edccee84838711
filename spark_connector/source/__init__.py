"""Reading: positions, plans, tasks, and deletion afterwards.

`batch` and `stream` are the classes that Spark calls. `stream` delegates, for each entity, to `follow` (browse and
drain: an offset is one number per partition) or to `claim` (an offset is a set of deferred messages); `drain` deletes
for `follow`, in a thread of its own. The steps to a batch: `positions` finds the first and last numbers of the
partitions, `admission` limits the batch, `plan` cuts it into tasks, `rows` reads a task on a worker. `browse` does all
peeking. `retries` opens connections and repeats work after transient failures. `offsets` defines what checkpoints hold.

The design rests on two facts: sequence numbers only grow, and a message below an end that was seen was visible at that
time. So a range of numbers gives the same messages at every read, except those that other consumers removed.
"""
