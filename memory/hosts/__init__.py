"""Bindings of memslot to agent frameworks, through public interfaces. Each host has one file or small folder.

Enters: what hands a turn to :class:`memory.runtime.HostTurns` and its section to the host. Stays out: any
rule about memory. No module imports a host's SDK before it is used.
"""
