"""The guide to training on CPUs as a whole program: Reduce mode and sparse updates."""

import os

import numpy as np
import paddle.fluid as fluid

dict_size = 500

main_program, startup_program = fluid.Program(), fluid.Program()
main_program.random_seed = startup_program.random_seed = 3
with fluid.program_guard(main_program, startup_program):
    data = fluid.layers.data(name="ids", shape=[1], dtype="int64")
    rating = fluid.layers.data(name="rating", shape=[1], dtype="float32")
    fc = fluid.layers.embedding(input=data, size=[dict_size, 16], is_sparse=True)
    score = fluid.layers.fc(input=fluid.layers.fc(input=fc, size=8, act="tanh"), size=1)
    cost = fluid.layers.square_error_cost(input=score, label=rating)
    avg_cost = fluid.layers.mean(cost)
    fluid.optimizer.SGD(learning_rate=0.5).minimize(avg_cost)

exe = fluid.Executor(fluid.CPUPlace())
exe.run(startup_program)

# Configure the execution strategy, mainly to set the number of threads
exec_strategy = fluid.ExecutionStrategy()
exec_strategy.num_threads = 8

# Configure the composition strategy, for CPU training, you should use the Reduce mode for training.
build_strategy = fluid.BuildStrategy()
if int(os.getenv("CPU_NUM")) > 1:
    build_strategy.reduce_strategy = fluid.BuildStrategy.ReduceStrategy.Reduce

pe = fluid.ParallelExecutor(
    use_cuda=False,
    loss_name=avg_cost.name,
    main_program=main_program,
    build_strategy=build_strategy,
    exec_strategy=exec_strategy,
)

random = np.random.RandomState(1)
ids = random.randint(0, dict_size, size=(64, 1)).astype("int64")
ratings = np.sin(ids).astype("float32")
for step in range(30):
    (losses,) = pe.run(fetch_list=[avg_cost], feed={"ids": ids, "rating": ratings})
    print("%.6f" % np.mean(losses))
