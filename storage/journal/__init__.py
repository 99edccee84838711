"""A journal for small batches of several stores: one write and one wait for the disk for all of them.

Modules, in reading order:

    journal.py          the file: groups of entries in two halves; appending
    writing.py          writes and waits for the disk, on a thread
    reading.py          its entries after a crash
    replay.py           which of them a store's file lacks; writing these into it
    row_layers.py       rows in memory over those of a file
    journaled_store.py  a store whose small batches go into a journal first

Why: docs/decisions/0017.
"""
