"""Tests of the Spark connector, by folder."""
