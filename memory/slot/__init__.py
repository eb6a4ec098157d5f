"""The slot of a host. Enters: every rule that is the same for all adapters, and the delivery of events
through the journal. Stays out: SDKs, configuration files, and facts about a single backend. Imports the
contract and storage."""
