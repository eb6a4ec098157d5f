"""memslot's six control conditions: what a memory is compared with. Plugins like any other, on the public pages."""
