"""Entities as values: descriptions, the limits of every profile, validation, and the catalog on disk.

Nothing here runs: `descriptions` are immutable, `profiles` is a table, `validation` compares the two, and `catalog`
stores descriptions under queue ids.
"""
