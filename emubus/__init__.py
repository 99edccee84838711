"""emubus: an Azure Service Bus emulator with real partitions (the glue: CLI, config, server)."""

__version__ = "0.1.0"
NO_WINDOWS = "the broker does not run on Windows; use WSL 2, or the container image"
"""The one line of every refusal there: uvloop, and file locks of the data folder, don't exist on Windows."""
