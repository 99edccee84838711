"""Messaging stores at run time: one worker for each store, its group commits, its outages (R3)."""
