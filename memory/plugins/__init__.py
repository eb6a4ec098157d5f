"""From a YAML file to an open slot: configuration, hooks, registry. Enters: code that finds, checks and
builds plugins. Stays out: SDKs, and the plugins themselves, which only entry points name. Imports the
contract, the storage and the slot."""
