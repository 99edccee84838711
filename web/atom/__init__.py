"""The management API: descriptions of entities as Atom XML, read and written by one set of tables."""
