"""What a source watches besides messages: which entity it is, outages, and how often it asks."""
