"""The checks a configuration passes before it is trusted (spec 4.3, steps 4 to 10).

Everything is tried on two synthetic scopes through the slot, as a host would; what a backend says of itself
(``committed``, ``ready``, ``verified``) is looked at again by reading. What could not be seen is ``pending``, never
green. What knows one backend, prints, or keeps results does not enter this room.
"""
