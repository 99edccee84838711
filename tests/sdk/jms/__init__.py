"""Qpid JMS against a Premium namespace."""
