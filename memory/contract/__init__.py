"""The words every room shares: what an adapter is, what goes in, what comes out, which errors there are. Types,
checks and pure functions; no SDK, YAML, pluggy, file, socket, nor any other room."""
