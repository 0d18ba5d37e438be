"""Checks for the exercises: one line when it is right, the likely mistake when not.

Each but `cabinet` is made of an `Exercise`. On its cases an answer is compared with the
right way: a right one is praised, and a wrong one told of the first mistake that gives
what it gives.
"""

from .attention import one_query, pad_mask, softmax_gradient, window_attention
from .blocks import channel_norm, fold, swiglu, third_block
from .encoder_decoder import (
    padded_loss,
    pre_norm_block,
    read_once,
    shifted,
    soft_targets,
)
from .fine_tuning import answers_alone, choice, merged, only_adapters, trainable
from .inside import carry, credit, lens
from .kv_cache import in_place, place, talk, text_cost
from .many_machines import equal_work, parts, plan, ring_seconds
from .mistakes import Mistake
from .multi_head import head_parameters, merge_heads, split_heads
from .nothing_crashes import cabinet, goes_on, later_changes_nothing
from .one_machine import accumulated, linear_attention, merge_all, pass_seconds
from .positional_encodings import buckets, induction_scores, neighbours, slopes
from .published_weights import chat, eight_bits, rows
from .pull_requests import packed, router, same_share, sinks
from .reward import (
    answer_loss,
    drawn_log_p,
    group_advantages,
    pass_at_k,
    policy_gradient,
)
from .sampling import crossing, dart, ending, write
from .serving import int8, pages_in_use, schedule
from .since_then import cache_bytes
from .tokens import decode, pieces, windows
from .training import adamw, best, clip, whole_split
