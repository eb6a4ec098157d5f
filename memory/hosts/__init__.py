"""memslot inside agents that others wrote, through their public points alone: one file or small folder for each.

Enters: what hands a turn to :class:`memory.runtime.HostTurns` and its section to the host. Stays out: any
rule about memory. Nothing here imports a host's SDK before it is used.
"""
