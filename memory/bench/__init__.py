"""The benchmark: data -> scores -> engine -> report, every arrow this way; and ``perf``, apart from them. Enters:
what runs, scores or shows an experiment. Stays out: commands, and what knows one backend."""
