"""Durable partitions: bytes and integers, one atomic batch at a time. Knows no queue."""
