"""The backends that memslot ships. They are plugins like any other.

Enters: translation for one memory, whose SDK is imported when the adapter is built. Stays out: code that a
    second
backend would also need, and imports of other backends.
"""
