"""``fluid.executor``."""

from dpexec.core.scope import global_scope, scope_guard
from dpexec.runtime.executor import Executor

__all__ = ["Executor", "global_scope", "scope_guard"]
