"""The page's views of what runs: the story of a message, clients, sessions, forwarding, faults, charts."""
