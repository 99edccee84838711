"""Pipelines that people run: each file is a program, for `spark-submit FILE` and `python -m …pipelines.NAME`.

Knows uses of the connector that many need: to archive, replay, copy, and to look at keys. Does not know more of the
connector than its users do: the programs go through `format("servicebus")`. What they share is in `job`, and `chart`
draws.
"""
