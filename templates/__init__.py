"""Deployment templates of ARM, which Bicep compiles to: read whole, evaluated as far as needed.

`reading` is the entry. Pure: no files, no network, no broker; what the cloud would say is asked of the caller.
"""
