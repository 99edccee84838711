"""Figures over time: a sample each second for an hour, and each minute for a day. Reads the broker's counters."""
