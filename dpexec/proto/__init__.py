"""``fluid.proto``: the messages that programs and values are stored in, without protobuf."""

from dpexec.proto import framework_pb2

__all__ = ["framework_pb2"]
