"""Timelines: what a benchmark goes through, read or generated. Imports nothing else of the benchmark."""
