"""Pictures of what dpexec builds and runs; installed as ``dpexec.viz``."""
