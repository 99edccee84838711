"""What monitoring systems learn of the broker: metrics and traces.

Reading order: `metric_table` (names, labels, units), `collecting` (the values), `prometheus` (as text); then `spans`
(what happens to messages, as spans), `otlp_metrics` and `otlp` (both for a collector), which need OpenTelemetry.
"""
