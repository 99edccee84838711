"""Suites that others wrote for the service, run against this server: `make conformance`."""
