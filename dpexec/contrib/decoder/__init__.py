"""``fluid.contrib.decoder``: recurrent decoders; users define one step."""

from dpexec.contrib.decoder import beam_search_decoder
from dpexec.contrib.decoder.beam_search_decoder import (
    BeamSearchDecoder,
    InitState,
    StateCell,
    TrainingDecoder,
)

__all__ = [
    "BeamSearchDecoder",
    "InitState",
    "StateCell",
    "TrainingDecoder",
    "beam_search_decoder",
]
