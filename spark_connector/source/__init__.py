"""Reading: positions, plans, tasks, and what is settled afterwards.

`batch` and `stream` are what Spark calls. Behind `stream` thinks either `follow` (browse and drain: offsets are numbers
per partition) or `claim` (offsets are sets of deferred messages); `drain` deletes behind `follow`, in a thread. On the
way to a batch: `positions` finds where partitions begin and end, `admission` says how much is taken, `plan` cuts tasks,
`rows` reads one on a worker. `browse` is all peeking, `asking` the door to connections, and the place where transient
failures are waited out. `offsets` is what stays in checkpoints. `lag` works on Spark's reports alone.

What everything rests on: sequence numbers only grow, and a message that can be peeked below the end that was seen was
visible then. So a range of numbers gives the same messages however often it is read, less those that others took.
"""
