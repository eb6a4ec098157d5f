"""Whether a package is installed, so that its tests are skipped with a reason where it is not."""

from importlib.util import find_spec


def installed(module):
    """Whether a top-level module can be imported; a folder of tests of the same name does not count."""
    spec = find_spec(module)
    return spec is not None and spec.origin is not None
