"""Several entities in one source: which ones (`choice`, `directory`), and how a query reads them together.

`choice` says which entities the options `entities` and `entityPattern` mean, `directory` asks the service for their
names. `joint` plans a stream over all of them by one planner for each, `offsets` is what its checkpoint holds. Reading
a task needs nothing of this: a task names its entity.
"""
