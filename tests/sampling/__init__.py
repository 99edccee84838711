"""Figures over time: how they are sampled, kept and drawn."""
