"""memslot's six control conditions, plugins like any other. Enters: what a memory is compared with. Stays
out: all that is behind the public pages; a condition made of a backend asks for it by name."""
