"""Entities from elsewhere: a live namespace (`atom`), an ARM template (`arm`, `expressions`). `command` applies."""
