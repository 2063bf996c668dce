"""The example of ExecutionStrategy's reference page as a whole program: linear regression."""

import numpy as np
import paddle.fluid as fluid

fluid.default_main_program().random_seed = 5
fluid.default_startup_program().random_seed = 5
x = fluid.layers.data(name="x", shape=[13], dtype="float32")
y = fluid.layers.data(name="y", shape=[1], dtype="float32")
y_predict = fluid.layers.fc(input=x, size=1, act=None)

cost = fluid.layers.square_error_cost(input=y_predict, label=y)
avg_loss = fluid.layers.mean(cost)

sgd_optimizer = fluid.optimizer.SGD(learning_rate=0.001)
sgd_optimizer.minimize(avg_loss)

place = fluid.CPUPlace()
exe = fluid.Executor(place)
exe.run(fluid.default_startup_program())

exec_strategy = fluid.ExecutionStrategy()
exec_strategy.num_threads = 4

train_exe = fluid.ParallelExecutor(
    use_cuda=False, loss_name=avg_loss.name, exec_strategy=exec_strategy
)

random = np.random.RandomState(2)
weights = random.uniform(-1, 1, size=(13, 1))
for step in range(30):
    features = random.normal(size=(32, 13)).astype("float32")
    prices = features.dot(weights).astype("float32")
    (losses,) = train_exe.run(fetch_list=[avg_loss.name], feed={"x": features, "y": prices})
    print("%.6f" % np.mean(losses))
