"""Figures: what a record says, what it counts for, and how far it can be trusted. Imports ``data`` alone."""
