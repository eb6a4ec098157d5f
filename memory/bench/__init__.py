"""The benchmark: data -> scores -> engine -> report, each importing only rooms before it.
Enters: what runs, scores or shows an experiment. Stays out: commands, and what knows one backend."""
