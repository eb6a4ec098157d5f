"""Timelines, read from data sets or generated. Imports no other room of the benchmark."""
