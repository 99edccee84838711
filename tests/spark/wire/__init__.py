"""Tests of the connector's client of the wire."""
