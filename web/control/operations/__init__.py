"""Endpoints for what runs: the story of a message, single connections and sessions."""
