"""memslot's six control conditions. They are plugins like any other.

Enters: what a memory is compared with. Stays out: everything behind the public pages. A condition that is
    made of a
backend requests it by name.
"""
