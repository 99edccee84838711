"""The commands of the command line, one module per topic.

`table.py` lists them. A module adds the arguments of a command to a parser and sets its `run(parsed)`, which returns
the exit code. The module of the command that the user has named is imported, and no other. Exit codes, options and the
terminal are the roof's (`emubus/exits.py`, `options.py`, `terminal.py`), because the server and `importing` use them.
"""
