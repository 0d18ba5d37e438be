"""What the chapters derive, and nothing else.

One legend of axes, used by every shape and every `einops` pattern:

    b batch    t query position    s key position    h head
    d features of one head    c channels (d_model)    v vocabulary

`companion.plots`, `companion.checks` and `companion.notebook` are imported by name.
"""

import warnings

# `python -m companion.training` is meant: the package has imported that module already.
warnings.filterwarnings("ignore", "'companion", RuntimeWarning, "runpy")

from .data import CACHE, batches, pack, split, tiny_shakespeare
from .tokenizers import BPETokenizer, CharTokenizer, gpt2_tokenizer, train_bpe
from .dates import date_batches, dates
from .attention import (
    MultiHeadAttention,
    attention,
    attention_weights,
    causal_mask,
    fused_attention,
    padding_mask,
    softmax,
)  # after the module `companion.attention`, so that the name is the function
from .positions import (
    RelativeBias,
    alibi,
    alibi_slopes,
    deinterleave,
    interleave,
    relative_buckets,
    rotary,
    rotate,
    sinusoidal,
)
from .cache import (
    Cache,
    ConcatenatingCache,
    Int8Cache,
    PreallocatedCache,
    RaggedCache,
    SlidingWindowCache,
    quantize,
)
from .blocks import (
    Block,
    CrossBlock,
    FeedForward,
    LayerNorm,
    RMSNorm,
    gelu,
    gelu_sigmoid,
    gelu_tanh,
    squared_relu,
)
from .models import GPT, EncoderDecoder, EncoderDecoderConfig, GPTConfig, Stack
from .optimizers import (
    AdamW,
    Muon,
    clip_gradients,
    muon,
    noam,
    orthogonalize,
    warmup_cosine,
    warmup_linear,
)
from .checkpoints import load_checkpoint, save_checkpoint
from .training import (
    RECIPES,
    Recipe,
    bits_per_character,
    evaluate,
    next_token_loss,
    run,
    train,
)
from .sampling import (
    beam_search,
    generate,
    greedy,
    min_p,
    sample,
    temperature,
    top_k,
    top_p,
)
