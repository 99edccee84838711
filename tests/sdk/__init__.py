"""Behaviour tests: one file per feature, each run over every real Service Bus SDK against one running server.

A test speaks to an SDK through a driver, a small program in the SDK's language (``PROTOCOL.md``, ``drivers/``).
``prepare`` builds the drivers, ``driver`` runs one as a process, ``client`` gives it the shape that tests use, and
``conftest`` puts them together. Nothing here imports the server's parts except through ``emubus.testing``.
"""
