"""Programs from ONNX models."""
