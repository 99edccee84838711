"""Tests of the wire adapter: two engines joined in memory, no sockets."""
