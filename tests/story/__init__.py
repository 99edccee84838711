"""The story of a message: what is kept of it, how it is found, and in which words it is shown."""
