"""Models that the real Paddle 1.8.5 saves, as ONNX, in a Python with onnxruntime alone.

    python -m tests.onnx.from_paddle --paddle PYTHON --onnxruntime PYTHON [NET ...]

Each net of ``exporting/zoo.py`` is built, given first values, run on random data and saved by
``PYTHON`` with Paddle; ``dpexec convert`` writes it as ONNX; the other ``PYTHON``, which needs
onnxruntime and NumPy alone, computes it and compares. Prints a line per net; the exit code is the
number of those that differ. It is run by hand: nothing else of the tests needs Paddle.
"""

import argparse
import importlib.util
import os
import subprocess
import sys
import tempfile

import numpy as np


def zoo(fluid):
    """The nets by name, built with the module ``fluid``."""
    sys.modules["dpexec"], sys.modules["dpexec.layers"] = fluid, fluid.layers
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "exporting", "zoo.py")
    spec = importlib.util.spec_from_file_location("zoo", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.MODELS


def made_up(fluid, program, names):
    """Random data for the inputs: arrays as ONNX takes them, and as Paddle does."""
    rng, arrays, feed = np.random.RandomState(0), {}, {}
    kinds = fluid.core.VarDesc.VarType
    for name in names:
        var = program.global_block().var(name)
        rows = 5 if var.lod_level else 2
        shape = [(rows if i == 0 else 8) if n < 0 else n for i, n in enumerate(var.shape)]
        real = var.dtype == kinds.FP32
        value = rng.uniform(-1, 1, shape) if real else rng.randint(0, 2, shape)
        if name == "regions":
            value = np.sort(rng.uniform(0, 16, (rows, 2, 2)), 1).reshape(rows, 4)
        dtype = {kinds.FP32: "float32", kinds.INT32: "int32", kinds.INT64: "int64"}[var.dtype]
        arrays[name] = feed[name] = value.astype(dtype)
        if var.lod_level:
            arrays[name + ".lengths"] = np.array([3, 2], np.int64)
            feed[name] = fluid.create_lod_tensor(arrays[name], [[3, 2]], fluid.CPUPlace())
    return arrays, feed


def save(folder, nets):
    """With Paddle: save models, what they are fed, and what they give."""
    import paddle.fluid as fluid

    models = zoo(fluid)
    for name in nets or models:
        main, startup = fluid.Program(), fluid.Program()
        main.random_seed = startup.random_seed = 3
        exe, scope = fluid.Executor(fluid.CPUPlace()), fluid.Scope()
        try:
            with fluid.scope_guard(scope), fluid.unique_name.guard():
                with fluid.program_guard(main, startup):
                    targets = models[name]()
                exe.run(startup)
                data = [v.name for v in main.list_vars() if v.is_data]
                read = {n for b in main.blocks for op in b.ops for n in op.input_arg_names}
                data = [n for n in data if n in read]
                path = os.path.join(folder, name)
                fluid.io.save_inference_model(path, data, targets, exe, main)
                arrays, feed = made_up(fluid, main, data)
                program, feeds, fetches = fluid.io.load_inference_model(path, exe)
                feed = {n: feed[n] for n in feeds}
                found = exe.run(program, feed=feed, fetch_list=fetches, return_numpy=False)
        except Exception as error:  # of any kind, as Paddle's own are
            print(name, "Paddle:", str(error).strip().splitlines()[-1][:150])
            continue
        results = {f"out_{i}": np.array(value) for i, value in enumerate(found)}
        given = {"in_" + n: v for n, v in arrays.items() if n.split(".lengths")[0] in feeds}
        np.savez(path + ".npz", **given, **results)


def check(folder):
    """With onnxruntime alone: compare every model with what Paddle gave."""
    import onnxruntime

    wrong = 0
    for file in sorted(os.listdir(folder)):
        name, extension = os.path.splitext(file)
        if extension != ".npz":
            continue
        model, data = os.path.join(folder, name + ".onnx"), np.load(os.path.join(folder, file))
        if not os.path.exists(model):
            print(f"{name:20} not converted")
            wrong += 1
            continue
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 4
        session = onnxruntime.InferenceSession(model, options)
        feed = {each.name: data["in_" + each.name] for each in session.get_inputs()}
        outputs = [each.name for each in session.get_outputs()]
        found = session.run([n for n in outputs if ".lengths" not in n], feed)
        far = 0.0
        for i, value in enumerate(found):
            wanted = data[f"out_{i}"]
            same = value.shape == wanted.shape and value.dtype == wanted.dtype
            scale = max(1.0, np.abs(wanted).max(initial=0))
            error = np.abs(value - wanted).max(initial=0) / scale if same else np.inf
            far = max(far, float(error))
        wrong += not far < 1e-4
        print(f"{name:20} {'equal' if far < 1e-4 else 'DIFFERENT'}  {far:.1e}")
    print(f"Python {sys.version.split()[0]}, onnxruntime {onnxruntime.__version__}; wrong: {wrong}")
    return wrong


def convert(folder):
    """With dpexec: what Paddle saved, as ONNX."""
    from dpexec.cli import main as command

    for name in sorted(os.listdir(folder)):
        path = os.path.join(folder, name)
        if os.path.exists(path + ".npz"):
            try:
                command(["convert", path, path + ".onnx"])
            except SystemExit as error:
                print(f"{name}: dpexec convert: {error}")


def main():
    """Save, convert, compare."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--paddle", required=True, help="a Python with Paddle 1.8.5")
    parser.add_argument("--onnxruntime", required=True, help="a Python with onnxruntime")
    parser.add_argument("nets", nargs="*", help="names; all by default")
    options = parser.parse_args()
    alone = {k: v for k, v in os.environ.items() if not k.startswith("PYTHON")}
    with tempfile.TemporaryDirectory() as folder:
        file = os.path.abspath(__file__)
        subprocess.run(
            [options.paddle, "-W", "ignore", file, "save", folder, *options.nets],
            check=True, env=alone,
        )  # fmt: skip
        convert(folder)
        command = [options.onnxruntime, "-I", file, "check", folder]
        return subprocess.run(command, env=alone).returncode


if __name__ == "__main__":
    roles = {"save": lambda: save(sys.argv[2], sys.argv[3:]), "check": lambda: check(sys.argv[2])}
    sys.exit(roles[sys.argv[1]]() if sys.argv[1:2] and sys.argv[1] in roles else main())
