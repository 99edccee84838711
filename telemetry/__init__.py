"""Figures of the broker: metrics and traces for monitoring systems, samples over time for our own page and API.

Reading order: `metric_table` (names, labels, units), `collecting` (the values), `prometheus` (as text); then `spans`
(what happens to messages, as spans), `otlp_metrics` and `otlp` (both for a collector), which need OpenTelemetry.
`sampler` reads the broker's counters each second into the rings of `series`.
"""
