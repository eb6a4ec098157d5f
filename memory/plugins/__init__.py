"""From a YAML file to an open slot: configuration, hooks, registry. Enters: what finds, checks and builds plugins.
Stays out: SDKs, and the plugins themselves, found by entry point alone. Imports the contract and the slot."""
