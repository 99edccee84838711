"""Several entities in one source: `members` says which ones, `directory` asks the service for their names.

`joint` plans a stream over all of them by one planner for each, `offsets` is what its checkpoint holds. Reading a task
needs nothing of this: a task names its entity.
"""
