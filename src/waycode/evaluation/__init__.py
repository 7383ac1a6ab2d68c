"""Metrics, and the tables and figures of the paper as reports: JSON with provenance, and a picture."""
