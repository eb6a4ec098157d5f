"""The backends memslot ships, plugins like any other. Enters: translation into one memory, whose SDK is imported
when it is built. Stays out: what a second backend would write too, and all other backends."""
