"""Pages and tables of an experiment's results. No other room of the benchmark imports this one."""
