"""What a host holds, and every rule that is the same for all adapters. Stays out: SDKs, configuration files, and
what is true of one backend alone. Imports the contract and nothing else."""
