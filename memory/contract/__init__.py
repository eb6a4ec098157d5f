"""The types that every room shares: adapters, requests, results and errors. Enters: types, checks and pure
functions. Stays out: SDKs, YAML, pluggy, files, sockets, and any other room."""
