"""The slot of a host. Enters: every rule that is the same for all adapters, and the journal. Stays out: SDKs,
configuration files, and what is true of one backend alone. Imports the contract and nothing else."""
