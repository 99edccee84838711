"""The service's bad days, on demand: what can go wrong, when it does, and in which words.

Reading order: `table` (every behaviour with its parameters and sources), `presets` (behaviours that come together),
`engine` (the conditions and faults that are on), `strikes` and `network` (what adapters ask, and what they let happen).
A behaviour is a row and a class of `behaviours/`. A fault is a condition of one behaviour that a test sets for exact
operations (`faults`, `behaviours/faults`).
"""
