"""The preference game: an agent that uses a memory, a simulated user, a judge, along a timeline (spec section 4.2).

Belongs to the harness, and may import what the harness may. Nothing here knows a backend.
"""
