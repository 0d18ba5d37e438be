"""What the chapters derive, and nothing else.

One legend of axes, used by every shape and every `einops` pattern:

    b batch    t query position    s key position    h head
    d features of one head    c channels (d_model)    v vocabulary

These names are what chapters use. The rooms they come from: `companion.text`,
`companion.model`, `companion.training`, `companion.decoding`, `companion.pretrained`,
`companion.course`, which holds what the course needs around them: figures, checks,
whole runs, and `companion.commands`, what is started in a terminal. Importing the
package changes nothing in the process.
"""

__version__ = "0.2.0"  # of the course, too: CHANGELOG.md

from .artifacts import CACHE
from .text.shakespeare import batches, split, tiny_shakespeare
from .text.tokenizers import BPETokenizer, CharTokenizer, gpt2_tokenizer, train_bpe
from .text.dates import date_batches, dates
from .model.attention import MultiHeadAttention, attention, attention_weights
from .model.attention import causal_mask, padding_mask, softmax
from .model.flash_attention import flash_attention
from .model.positions import ALiBi, LearnedPositions, Place, Positions, RelativeBias
from .model.positions import RotaryPositions, SinusoidalPositions, alibi, apply_rotary
from .model.positions import deinterleave, interleave, relative_buckets
from .model.positions import rotary, rotate, sinusoidal
from .model.cache import Cache, ConcatenatingCache, Int8Cache, PreallocatedCache
from .model.cache import quantize
from .model.serving_caches import RaggedCache, SinkCache, SlidingWindowCache
from .model.blocks import Block, FeedForward, GatedFeedForward, LayerNorm, PostNormBlock
from .model.blocks import RMSNorm
from .model.gpt import GPT, GPTConfig
from .model.encoder_decoder import TRANSFORMER_BASE, EncoderDecoder
from .training.optimizers import AdamW, Muon, muon, orthogonalize
from .training.optimizers import noam, warmup_cosine, warmup_linear
from .training.loop import bits_per_character, evaluate, next_token_loss, train
from .training.checkpoints import load_checkpoint, save_checkpoint
from .decoding.sampling import generate, greedy, sample
from .decoding.sampling import min_p, temperature, top_k, top_p
from .decoding.beam_search import beam_search
from .decoding.speculation import PromptLookup, speculate
from .decoding.serving import Request, Server
from .pretrained.families import load_family
from .course.recipes import RECIPES, Recipe
from .course.runs import train_recipe
from .course.explore import explore
