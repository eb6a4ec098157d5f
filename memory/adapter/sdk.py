"""Guards around SDKs that change the process: its environment, loggers and heap."""

from memory.adapter._sdk import environment_kept, quiet_loggers, trim_heap, warnings_only

__all__ = ["environment_kept", "quiet_loggers", "trim_heap", "warnings_only"]
