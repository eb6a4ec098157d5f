"""The words every room shares: what an adapter is, what goes in, what comes out, which errors there are. Enters:
types, checks and pure functions. Stays out: SDKs, YAML, pluggy, files, sockets, and any other room."""
