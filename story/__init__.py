"""The story of a message: what happened to it, event by event, from its sending to its end.

Reading order: `ring` (keeps the events), `search` (finds those of one message), `verdicts` and `sql_text` (why a rule
does not match), `tracing` (an event as a sentence and as JSON). Does not know frames and HTTP.
"""
