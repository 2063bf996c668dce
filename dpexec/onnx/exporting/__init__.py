"""From programs to ONNX models; ``mappings`` has the ONNX nodes of each operator."""
