"""The module ``fluid.layers.rnn``, which holds cells, decoders and recurrent layers.

``layers.rnn`` itself is the function of that name, as in fluid.
"""

from dpexec.layers.beam_decoder import BeamSearchDecoder
from dpexec.layers.beams import beam_search, beam_search_decode
from dpexec.layers.cells import GRUCell, LSTMCell, RNNCell, rnn
from dpexec.layers.decode_helpers import (
    DecodeHelper,
    GreedyEmbeddingHelper,
    SampleEmbeddingHelper,
    TrainingHelper,
)
from dpexec.layers.decoders import BasicDecoder, Decoder, dynamic_decode
from dpexec.layers.recurrent import dynamic_gru, dynamic_lstm, dynamic_lstmp, lstm
from dpexec.layers.recurrent_steps import gru_unit, lstm_unit

__all__ = [
    "BasicDecoder",
    "BeamSearchDecoder",
    "DecodeHelper",
    "Decoder",
    "GRUCell",
    "GreedyEmbeddingHelper",
    "LSTMCell",
    "RNNCell",
    "SampleEmbeddingHelper",
    "TrainingHelper",
    "beam_search",
    "beam_search_decode",
    "dynamic_decode",
    "dynamic_gru",
    "dynamic_lstm",
    "dynamic_lstmp",
    "gru_unit",
    "lstm",
    "lstm_unit",
    "rnn",
]
