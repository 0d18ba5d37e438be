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
from .data import batches, split, tiny_shakespeare
from .tokenizers import BPETokenizer, CharTokenizer, gpt2_tokenizer, train_bpe
from .dates import date_batches, dates
from .block_attention import block_attention
from .positions import ALiBi, LearnedPositions, Place, Positions, RelativeBias
from .positions import RotaryPositions, SinusoidalPositions, alibi, apply_rotary
from .positions import deinterleave, interleave, relative_buckets
from .positions import rotary, rotate, sinusoidal
from .attention import MultiHeadAttention, attention_weights, causal_mask
from .attention import attention, padding_mask, softmax  # now `attention` is no module
from .cache import Cache, ConcatenatingCache, Int8Cache, PreallocatedCache, quantize
from .serving_caches import RaggedCache, SlidingWindowCache
from .blocks import Block, FeedForward, GatedFeedForward, LayerNorm, PostNormBlock
from .blocks import RMSNorm
from .models import GPT, GPTConfig
from .encoder_decoder import TRANSFORMER_BASE, EncoderDecoder
from .optimizers import AdamW, Muon, muon, orthogonalize
from .optimizers import noam, warmup_cosine, warmup_linear
from .training import bits_per_character, evaluate, next_token_loss, train
from .checkpoints import load_checkpoint, save_checkpoint
from .recipes import RECIPES, Recipe
from .runs import train_recipe
from .sampling import beam_search, generate, greedy, sample
from .sampling import min_p, temperature, top_k, top_p
from .speculation import PromptLookup, speculate
from .serving import Request, Server
from .explore import explore  # now `explore` is no module
