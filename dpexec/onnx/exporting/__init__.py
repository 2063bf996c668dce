"""From programs to ONNX models; what becomes of an operator stands in ``mappings``."""
