"""``memslot tools perf``: compares a backend with its bare library. Imports no other room of ``bench``."""
