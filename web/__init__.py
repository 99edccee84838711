"""The HTTP adapter: one aiohttp application over the broker's verbs. It decides no rule of Service Bus.

`lazy_server` is what a server needs at its start. It loads `server`, with aiohttp and all parts, at the first request.
"""
