"""Plays, asks, keeps, resumes and verifies the cells of an experiment. Imports ``data`` and ``scores``."""
