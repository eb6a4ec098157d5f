"""A plugin that fails as soon as it is imported."""

raise RuntimeError("broken on purpose")
