"""Small models of deployed families, with their typical operators and shapes."""

import dpexec as fluid
from dpexec import layers


def conv(x, filters, size=3, act="relu", norm=True, **given):
    """A convolution that keeps the size, with batch norm."""
    given.setdefault("padding", (size - 1) // 2)
    x = layers.conv2d(x, filters, size, bias_attr=not norm, act=None if norm else act, **given)
    return layers.batch_norm(x, act=act) if norm else x


def image(size=16, channels=3):
    return fluid.data("image", [None, channels, size, size])


def classes(x, count=5):
    return layers.fc(layers.pool2d(x, global_pooling=True, pool_type="avg"), count, act="softmax")


def bottleneck(x, filters, stride=1):
    y = conv(conv(x, filters, 1), filters, 3, stride=stride)
    y = conv(y, 2 * filters, 1, act=None)
    short = conv(x, 2 * filters, 1, act=None, stride=stride)
    return layers.relu(layers.elementwise_add(short, y))


def resnet50():
    x = layers.pool2d(conv(image(), 4, 7, stride=2), 3, "max", pool_stride=2, pool_padding=1)
    return [classes(bottleneck(bottleneck(x, 4), 6, 2))]


def resnet_vd():
    x = conv(image(), 4, 3, stride=2)
    y = layers.pool2d(x, 2, "avg", pool_stride=2, ceil_mode=True)
    y, x = conv(y, 6, 1, None), conv(x, 6, 3, stride=2)
    return [classes(layers.elementwise_add(y, x, act="relu"))]


def alexnet():
    x = layers.lrn(layers.conv2d(image(), 6, 5, stride=2, act="relu"), n=5, alpha=1e-4)
    x = layers.pool2d(x, 3, "max", pool_stride=2, ceil_mode=True)
    x = layers.dropout(layers.fc(x, 10, act="relu"), 0.5)
    return [layers.fc(x, 5, act="softmax")]


def squeezenet():
    x = layers.conv2d(image(), 4, 3, stride=2, act="relu")
    squeezed = layers.conv2d(x, 2, 1, act="relu")
    sides = [layers.conv2d(squeezed, 4, k, padding=k // 2, act="relu") for k in (1, 3)]
    return [classes(layers.concat(sides, axis=1))]


def densenet():
    x = conv(image(8), 4)
    for _ in range(3):
        x = layers.concat([x, conv(layers.batch_norm(x, act="relu"), 2, norm=False)], axis=1)
    return [classes(layers.pool2d(x, 2, "avg", pool_stride=2))]


def inception():
    x, pooled = image(8), layers.pool2d(image(8), 3, "avg", pool_padding=1, exclusive=False)
    sides = [conv(x, 3, 1), conv(conv(x, 2, 1), 3, 3), conv(pooled, 2, 1)]
    return [classes(layers.concat(sides, axis=1))]


def mobilenet_v3():
    x = layers.hard_swish(conv(image(), 4, 3, act=None, stride=2))
    x = conv(x, 4, 3, act=None, groups=4)
    gate = layers.fc(layers.pool2d(x, global_pooling=True, pool_type="avg"), 2, act="relu")
    gate = layers.fc(gate, 4, act="hard_sigmoid")
    return [classes(layers.elementwise_mul(x, gate, axis=0))]


def shufflenet():
    left, right = layers.split(conv(image(), 8, stride=2), 2, dim=1)
    right = conv(conv(right, 4, 1), 4, groups=4, act=None)
    return [classes(layers.shuffle_channel(layers.concat([left, right], axis=1), 2))]


def efficientnet():
    x = layers.swish(conv(image(), 4, act=None, stride=2, padding="SAME"))
    x = layers.swish(conv(x, 4, 5, act=None, groups=4, stride=2, padding="SAME"))
    return [classes(x)]


def vgg_nhwc():
    x = layers.conv2d(fluid.data("image", [None, 8, 8, 3]), 4, 3, act="relu", data_format="NHWC")
    x = layers.pool2d(x, 2, "max", pool_stride=2, data_format="NHWC")
    return [layers.fc(x, 5, act="softmax")]


def unet():
    x = conv(image(), 4)
    deep = conv(layers.pool2d(x, 2, "max", pool_stride=2), 6)
    up = layers.conv2d_transpose(deep, 4, filter_size=2, stride=2)
    x = conv(layers.concat([up, x], axis=1), 4)
    return [layers.argmax(layers.conv2d(x, 3, 1), axis=1)]


def deeplab():
    x = conv(image(), 4, stride=2)
    whole = conv(layers.reduce_mean(x, [2, 3], keep_dim=True), 4, 1)
    whole = layers.resize_bilinear(whole, out_shape=[8, 8], align_corners=True)
    wide = conv(x, 4, 3, dilation=2, padding=2)
    x = conv(layers.concat([whole, wide, conv(x, 4, 1)], axis=1), 3, 1)
    return [layers.softmax(layers.resize_bilinear(x, scale=2.0, align_mode=0), axis=1)]


def hrnet():
    x = conv(image(), 4)
    low = conv(x, 4, stride=2)
    up = layers.resize_nearest(low, scale=2.0, align_corners=False)
    return [layers.conv2d(layers.elementwise_add(x, up, act="relu"), 3, 1)]


def feature_pyramid():
    x = conv(image(), 4, stride=2)
    deep = conv(x, 4, stride=2)
    size = layers.slice(layers.shape(x), axes=[0], starts=[2], ends=[4])
    up = layers.resize_nearest(deep, out_shape=size)
    return [layers.elementwise_add(conv(x, 4, 1), up)]


def open_pyramid():
    x = conv(fluid.data("image", [None, 3, None, None]), 4, stride=2)
    up = layers.resize_bilinear(conv(x, 4), scale=2.0, align_corners=False)
    small = layers.image_resize(up, [6, 6], align_corners=False)
    return [layers.pool2d(up, global_pooling=True), small]


def super_resolution():
    x = layers.prelu(layers.conv2d(image(8), 12, 3, padding=1), mode="channel")
    return [layers.tanh(layers.pixel_shuffle(x, 2))]


def star_gan():
    x = layers.instance_norm(layers.conv2d(image(8), 4, 3, padding=1), epsilon=1e-5)
    x = layers.pad2d(layers.relu(x), [1, 1, 1, 1], mode="reflect")
    style = layers.expand(layers.unsqueeze(fluid.data("style", [None, 2]), [2, 3]), [1, 1, 8, 8])
    x = layers.concat([layers.conv2d(x, 4, 3), style], axis=1)
    return [layers.tanh(layers.conv2d_transpose(x, 3, filter_size=4, stride=2, padding=1))]


def group_norm_net():
    return [classes(layers.relu(layers.group_norm(layers.conv2d(image(8), 6, 3), groups=3)))]


def video_shift():
    frames = fluid.data("image", [None, 4, 8, 8])
    return [classes(conv(layers.temporal_shift(frames, 2, 0.25), 4))]


def volumes():
    x = layers.conv3d(fluid.data("image", [None, 2, 4, 6, 6]), 3, 3, padding=1, act="relu")
    x = layers.pool3d(layers.batch_norm(x), 2, "max", pool_stride=2)
    return [layers.fc(layers.conv3d_transpose(x, 2, filter_size=2, stride=2), 3)]


def text_detection():
    x = conv(image(), 4, stride=2)
    score = layers.conv2d(x, 1, 1, act="sigmoid")
    geometry = layers.polygon_box_transform(layers.conv2d(x, 8, 1))
    return [score, geometry]


def text_recognition():
    x = layers.pool2d(conv(image(8, 1), 4), 2, "max", pool_stride=(2, 1))
    steps = layers.im2sequence(x, filter_size=[x.shape[2], 1], stride=[1, 1])
    sides = [
        layers.dynamic_gru(layers.fc(steps, 9), 3, is_reverse=way, origin_mode=way)
        for way in (False, True)
    ]
    logits = layers.fc(sides, 6)
    return [layers.ctc_greedy_decoder(logits, blank=5)]


def spatial_transformer():
    theta = layers.reshape(layers.fc(image(8), 6), [-1, 2, 3])
    grid = layers.affine_grid(theta, [2, 3, 8, 8])
    return [classes(layers.grid_sampler(image(8), grid))]


def mask_head():
    regions = fluid.data("regions", [None, 4], lod_level=1)
    x = layers.roi_align(conv(image(), 4), regions, 2, 2, 0.5, 2)
    return [layers.conv2d_transpose(x, 3, filter_size=2, stride=2, act="sigmoid")]


def bert():
    ids, kinds = (fluid.data(name, [None, 6], dtype="int64") for name in ("words", "kinds"))
    places = layers.range(0, 6, 1, "int64")
    x = fluid.embedding(ids, [30, 8], padding_idx=0) + fluid.embedding(kinds, [2, 8])
    x = x + layers.unsqueeze(fluid.embedding(places, [6, 8]), [0])
    x = layers.layer_norm(x, begin_norm_axis=2)
    mask = layers.cast(layers.not_equal(ids, layers.zeros_like(ids)), "float32")
    mask = layers.unsqueeze(layers.scale(mask, 1e4, bias=-1.0, bias_after_scale=False), [1, 2])

    def heads(x):
        return layers.transpose(layers.reshape(x, [0, 0, 2, 4]), [0, 2, 1, 3])

    query, key, value = (heads(layers.fc(x, 8, num_flatten_dims=2)) for _ in range(3))
    weights = layers.softmax(layers.matmul(query, key, transpose_y=True, alpha=0.5) + mask)
    context = layers.transpose(layers.matmul(layers.dropout(weights, 0.1), value), [0, 2, 1, 3])
    x = layers.layer_norm(x + layers.reshape(context, [0, 0, 8]), begin_norm_axis=2)
    x = layers.fc(x, 8, num_flatten_dims=2, act="gelu")
    first = layers.slice(x, axes=[1], starts=[0], ends=[1])
    return [layers.fc(layers.squeeze(first, [1]), 8, act="tanh")]


def lexical_tags():
    words = fluid.data("words", [None, 1], "int64", lod_level=1)
    x = layers.fc(layers.embedding(words, [30, 6]), 12)
    hidden, cell = layers.dynamic_lstm(x, 12, use_peepholes=True)
    emission = layers.fc([hidden, cell], 4)
    layers.create_parameter([6, 4], "float32", name="transitions")
    return [layers.crf_decoding(emission, fluid.ParamAttr(name="transitions"))]


def counting_loop():
    x = layers.assign(fluid.data("x", [None, 4]))
    i, end = layers.fill_constant([1], "int64", 0), layers.fill_constant([1], "int64", 3)

    def body(i, value):
        return [layers.increment(i), layers.fc(value, 4, param_attr="shared", act="tanh")]

    return [layers.while_loop(lambda i, _: layers.less_than(i, end), body, [i, x])[1]]


def array_loop():
    x, i = fluid.data("x", [None, 4]), layers.fill_constant([1], "int64", 0)
    end = layers.fill_constant([1], "int64", 3)
    array = layers.array_write(x, i)
    going = layers.less_than(i, end)
    loop = layers.While(going)
    with loop.block():
        before = layers.array_read(array, i)
        layers.increment(i)
        layers.array_write(layers.scale(before, 2.0), i, array)
        layers.less_than(i, end, cond=going)
    return [layers.array_read(array, end), layers.array_length(array)]


def branches():
    x = fluid.data("x", [None, 4])
    large = layers.greater_than(layers.mean(x), layers.fill_constant([1], "float32", 0.0))
    return [layers.cond(large, lambda: layers.fc(x, 3), lambda: layers.fc(x, 3, act="relu"))]


def divided():
    x = fluid.data("x", [None, 4])
    large = layers.greater_than(
        layers.reduce_sum(x, 1, keep_dim=True), layers.fill_constant([2, 1], "float32", 0.0)
    )
    both = layers.IfElse(large)
    with both.true_block():
        both.output(layers.fc(both.input(x), 3))
    with both.false_block():
        both.output(layers.fc(both.input(x), 3, act="tanh"))
    return both()


def spectral_gan():
    noise = layers.reshape(layers.fc(fluid.data("noise", [None, 4]), 4 * 4 * 4), [-1, 4, 4, 4])
    weight = layers.create_parameter([3, 4, 3, 3], "float32")
    x = layers.conv2d_transpose(
        layers.leaky_relu(noise, 0.2), 4, filter_size=4, stride=2, padding=1
    )
    scale = layers.spectral_norm(weight, power_iters=2)
    return [layers.tanh(x), layers.reduce_sum(scale)]


def switched():
    x = fluid.data("x", [None, 4])
    return [
        layers.switch_case(
            layers.cast(layers.ceil(layers.mean(x)), "int32"),
            {0: lambda: x * 2.0, 1: lambda: x - 1.0},
            default=lambda: layers.relu(x),
        )
    ]  # fmt: skip


def steps():
    x = fluid.data("x", [3, 2, 4])
    rnn = layers.StaticRNN()
    with rnn.step():
        now = rnn.step_input(x)
        before = rnn.memory(shape=[-1, 5], batch_ref=x)
        after = layers.fc([now, before], 5, act="tanh")
        rnn.update_memory(before, after)
        rnn.step_output(after)
    return [rnn()]


MODELS = {
    function.__name__: function
    for function in (
        *(resnet50, resnet_vd, alexnet, squeezenet, densenet, inception, mobilenet_v3, shufflenet),
        *(efficientnet, vgg_nhwc, unet, deeplab, hrnet, feature_pyramid, open_pyramid),
        *(super_resolution, star_gan, group_norm_net, video_shift, volumes, text_detection),
        *(text_recognition, spatial_transformer, mask_head, bert, lexical_tags, counting_loop),
        *(array_loop, branches, divided, spectral_gan, switched, steps),
    )
}
