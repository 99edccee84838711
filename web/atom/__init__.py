"""Descriptions of entities as Atom XML, the language of the management API: reading, writing, the tables of both."""
