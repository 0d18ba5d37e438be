"""Checks for the exercises: one line when it is right, the likely mistake when not."""

from .attention import one_query, pad_mask, softmax_gradient, window_attention
from .blocks import block_count, fixed_block, fold, swiglu
from .compare import Mistake
from .encoder_decoder import padded_loss, shifted, soft_targets, three_masks
from .kv_cache import cache_bytes, int8, offset_mask, ring
from .multi_head import head_parameters, induction_scores, merge_heads, split_heads
from .positional_encodings import buckets, neighbours, next_positions, slopes
from .sampling import nucleus, penalty, scaled
from .tokens import decode, fewest, pieces, windows
from .training import clip, mask_scores, perplexity, whole_split
