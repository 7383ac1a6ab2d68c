"""Metrics, and a module per table or figure of the paper."""
