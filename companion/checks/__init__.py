"""Checks for the exercises: one line when it is right, the likely mistake when not."""

from .attention import one_query, pad_mask, softmax_gradient, window_attention
from .blocks import block_count, fixed_block, fold, swiglu
from .compare import Mistake
from .encoder_decoder import padded_loss, shifted, soft_targets, three_masks
from .kv_cache import loop, next_positions, offset_mask
from .multi_head import head_parameters, induction_scores, merge_heads, split_heads
from .positional_encodings import buckets, neighbours, slopes
from .sampling import entropy, penalty, scaled, write
from .serving import cache_bytes, int8, ring
from .tokens import decode, fewest, pieces, windows
from .training import clip, mask_scores, perplexity, whole_split
