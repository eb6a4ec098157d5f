"""A runner of conformance vectors against any node: the Stigmem project's and memslot's own, with a mark."""
