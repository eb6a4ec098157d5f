"""Figures from records: what each request counts for, and confidence intervals. Imports only ``data``."""
