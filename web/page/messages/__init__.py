"""The search form of the page of messages, and the columns of its table."""
