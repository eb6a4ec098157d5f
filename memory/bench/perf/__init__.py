"""``memslot tools perf``: a backend beside its bare library. Knows nothing of the other rooms of the benchmark."""
