"""The test kit as its users see it: the pytest plugin, the container, an emubus elsewhere, and the examples."""
