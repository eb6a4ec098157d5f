"""The specs, by what they are about. None imports pytest."""
