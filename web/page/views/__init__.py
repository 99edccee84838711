"""The pages that a browser shows: one module for each."""
