"""Guards around an SDK that changes its process: the environment, loggers, the heap and warnings."""

from memory.adapter._sdk import environment_kept, quiet_loggers, trim_heap, warnings_only

__all__ = ["environment_kept", "quiet_loggers", "trim_heap", "warnings_only"]
