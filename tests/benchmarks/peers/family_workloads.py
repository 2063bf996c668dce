"""The nets of ``families.py`` and ``images.py``: sizes and titles; for Python 3.7 and newer."""

COMMON = {"optimizer": "adam", "rate": 1e-3}
WORKLOADS = {
    "gan": dict(COMMON, net="generator", batch=32),
    "ssd": dict(COMMON, net="ssd", batch=8),
    "yolo": dict(COMMON, net="yolov3", batch=8, optimizer="momentum"),
    "crnn": dict(COMMON, net="crnn", batch=8),
    "deepfm": dict(COMMON, net="deepfm", batch=512, words=100_000),
    "movies": dict(COMMON, net="recommender", batch=64, words=5000),
    "speech": dict(COMMON, net="stacked lstmp", batch=16),
    "graph": dict(COMMON, net="graph convolution", batch=64),
    "tagger": dict(COMMON, net="bigru crf", batch=32, words=5000),
    "mobile": dict(COMMON, net="depthwise", batch=16, optimizer="momentum"),
    "pixels": dict(COMMON, net="dilated", batch=4, optimizer="momentum"),
    "translate": dict(COMMON, net="encoder decoder", batch=16, words=4000),
    "digits": dict(COMMON, net="layers", batch=64, schedule=True),
}
TITLES = {
    "gan": "GAN: transposed convolutions and batch norm, through a discriminator; batch 32, Adam",
    "ssd": "detection: convolutions, multi_box_head, ssd_loss; batch 8, Adam",
    "yolo": "detection: a small darknet, yolov3_loss; batch 8, Momentum",
    "crnn": "text in images: convolutions, im2sequence, gru both ways, warpctc; batch 8, Adam",
    "deepfm": "clicks: factorization machine and layers over 26 sparse slots; batch 512, Adam",
    "movies": "recommender: titles as sequences, users, cos_sim; batch 64, Adam",
    "speech": "acoustic model: three layers of dynamic_lstmp over frames; batch 16, Adam",
    "graph": "two graph convolutions: gathered neighbours, sums of sequences; 64 graphs, Adam",
    "tagger": "words in context: gru both ways, linear_chain_crf; batch 32, Adam",
    "mobile": "depthwise and grouped convolutions with batch norm; batch 16, Momentum",
    "pixels": "segmentation: dilated convolutions, resize_bilinear; batch 4, Momentum",
    "translate": "transformer of 2 + 2 layers, label smoothing; batch 16, Adam",
    "digits": "784-200-10, a rate by linear_lr_warmup and piecewise_decay; batch 64, Adam",
}
