"""Endpoints that act on many messages: jobs, and messages as JSON Lines."""
