"""The checks a configuration passes before it is trusted (spec 4.3, steps 4 to 10). Enters: what is tried on
synthetic scopes through the slot; what could not be seen is ``pending``, never green. Stays out: what knows one
backend, prints, or keeps results."""
