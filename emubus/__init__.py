"""emubus: a local stand-in for Azure Service Bus with real partitions (the glue: CLI, config, server)."""

__version__ = "0.1.0"
