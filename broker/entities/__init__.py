"""Entities at run time: a request is routed to partitions, and the answers of several partitions are joined."""
