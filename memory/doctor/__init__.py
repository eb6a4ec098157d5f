"""The checks that a configuration passes before it is trusted (spec 4.3, steps 4 to 10). A check without
evidence is ``pending``, never green. Enters: checks on synthetic scopes through the slot. Stays out: code
that knows a single backend, prints, or keeps results."""
