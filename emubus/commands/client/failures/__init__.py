"""Commands that make a running emubus fail on purpose, or move its clock: `simulation`, then `exercise`."""
