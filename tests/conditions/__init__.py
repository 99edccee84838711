"""Conditions: what goes wrong on purpose, and what clients make of it."""
