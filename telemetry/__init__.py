"""What monitoring systems learn of the broker: its metrics, as one table, and their values.

Reading order: `metric_table` (names, labels, units), `collecting` (the values), `prometheus` (as text).
"""
