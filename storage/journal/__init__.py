"""A journal for small batches of several stores: one write and one wait for the disk for all of them.

Modules, in reading order:

    journal.py          the file: groups of entries in two halves; appending
    writing.py          writes and waits for the disk, on a thread
    reading.py          its entries after a crash
    rows.py             changes of rows, over those of a file
    replay.py           which of them a store's file lacks; writing these into it
    journaled_store.py  a store whose small batches go into a journal first, and are rows in memory until then

Why: docs/decisions/0017.
"""
