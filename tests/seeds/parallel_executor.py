"""The guide to ParallelExecutor as a whole program: train and test executors sharing parameters."""

import argparse

import numpy as np
import paddle.fluid as fluid

parser = argparse.ArgumentParser()
parser.add_argument("--use_cuda", action="store_true")
parser.add_argument("--memory_opt", action="store_true")
options = parser.parse_args()
use_cuda, memory_opt = options.use_cuda, options.memory_opt
dev_count = fluid.core.get_cuda_device_count() if use_cuda else len(fluid.cpu_places())

# A classifier for points on a plane: which quarter are they in?
fluid.default_main_program().random_seed = 7
fluid.default_startup_program().random_seed = 7
point = fluid.layers.data(name="point", shape=[2], dtype="float32")
label = fluid.layers.data(name="label", shape=[1], dtype="int64")
hidden = fluid.layers.fc(input=point, size=32, act="relu")
quarter = fluid.layers.fc(input=hidden, size=4, act="softmax")
loss = fluid.layers.mean(fluid.layers.cross_entropy(input=quarter, label=label))
test_program = fluid.default_main_program().clone(for_test=True)
fluid.optimizer.Adam(learning_rate=0.05).minimize(loss)

# Note:
#   - If you want to specify the GPU cards which are used to run
#     in ParallelExecutor, you should define the CUDA_VISIBLE_DEVICES
#     in environment.
#   - If you want to use multi CPU to run the program in ParallelExecutor,
#     you should define the CPU_NUM in the environment.

# First create the Executor.
place = fluid.CUDAPlace(0) if use_cuda else fluid.CPUPlace()
exe = fluid.Executor(place)

# Run the startup program once and only once.
exe.run(fluid.default_startup_program())

# Define train_exe and test_exe
exec_strategy = fluid.ExecutionStrategy()
exec_strategy.num_threads = dev_count * 4  # the size of thread pool.
build_strategy = fluid.BuildStrategy()
build_strategy.memory_optimize = True if memory_opt else False

train_exe = fluid.ParallelExecutor(
    use_cuda=use_cuda,
    loss_name=loss.name,
    build_strategy=build_strategy,
    exec_strategy=exec_strategy,
)
# NOTE: loss_name is unnecessary for test_exe.
test_exe = fluid.ParallelExecutor(
    use_cuda=use_cuda, main_program=test_program, share_vars_from=train_exe
)


def points(count, random):
    """Draw points and say in which quarter each lies."""
    values = random.uniform(-1, 1, size=(count, 2)).astype("float32")
    quarters = (values[:, :1] > 0) + 2 * (values[:, 1:] > 0)
    return {"point": values, "label": quarters.astype("int64")}


random = np.random.RandomState(0)
held_out = points(48, random)
for step in range(30):
    feed_dict = points(48, random)
    (train_loss,) = train_exe.run(fetch_list=[loss.name], feed=feed_dict)
    (test_loss,) = test_exe.run(fetch_list=[loss.name], feed=held_out)
    print("%.6f %.6f" % (np.mean(train_loss), np.mean(test_loss)))
