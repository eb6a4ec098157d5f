"""The engine: a matrix of cells, played or asked, kept, resumed and verified. Imports ``data`` and ``scores``."""
