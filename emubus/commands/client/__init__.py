"""Commands that are clients of a running emubus, over its control API.

Reading order: `address` (which server, which key), `api` (requests and errors), `output` (text and JSON), then the
commands, one module per topic.
"""
