"""What goes wrong on purpose, over the control API: faults and drops, and conditions."""
