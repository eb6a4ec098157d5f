"""The checks a configuration passes before it is trusted (spec 4.3, steps 4 to 10), tried on two synthetic scopes
through the slot. What could not be seen is ``pending``, never green. What knows one backend, prints, or keeps
results does not enter this room."""
