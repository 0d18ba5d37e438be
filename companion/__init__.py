"""What the chapters derive, and nothing else.

One legend of axes, used by every shape and every `einops` pattern:

    b batch    t query position    s key position    h head
    d features of one head    c channels (d_model)    v vocabulary

`companion.plots`, `companion.checks` and `companion.notebook` are imported by name.
`companion.attention` is the function: what else its module holds is had by
`from companion.attention import ...`. Importing the package changes nothing in the
process.
"""

from .artifacts import CACHE
from .data import batches, pack, split, tiny_shakespeare
from .tokenizers import BPETokenizer, CharTokenizer, gpt2_tokenizer, train_bpe
from .dates import date_batches, dates
from .block_attention import block_attention
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
    ALiBi,
    LearnedPositions,
    Positions,
    RelativeBias,
    RotaryPositions,
    SinusoidalPositions,
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
    Place,
    PreallocatedCache,
    RaggedCache,
    SlidingWindowCache,
    quantize,
)
from .blocks import (
    Block,
    CrossBlock,
    FeedForward,
    GatedFeedForward,
    LayerNorm,
    RMSNorm,
    gelu,
    gelu_sigmoid,
    gelu_tanh,
    squared_relu,
)
from .models import GPT, GPTConfig, Stack
from .encoder_decoder import TRANSFORMER_BASE, EncoderDecoder
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
from .training import bits_per_character, evaluate, next_token_loss, train
from .checkpoints import load_checkpoint, save_checkpoint
from .recipes import RECIPES, Recipe
from .runs import run
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
from .speculation import LookUp, Smaller, speculate
from .serving import Request, Server
