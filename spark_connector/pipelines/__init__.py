"""Programs: each file runs by `spark-submit FILE` and `python -m …pipelines.NAME`.

Knows common uses of the connector: to archive, replay and copy messages, and to examine keys. The programs use
`format("servicebus")` as other programs do. `job` has what they share, and `chart` draws.
"""
