"""Messaging stores at run time: one worker per store, its group commits, timers and outages (R3)."""
