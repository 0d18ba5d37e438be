"""What must hold of everything at once, tried at random: `python tests/tools/fuzz.py`.

A property takes a random number generator and asserts. Each is run in turn with seeds
0, 1, 2, ... for so many minutes; where one fails, the command that repeats it is said.
`make fuzz` gives it ten minutes; test_fuzz.py tries a few seeds of each.
"""

import argparse
import random
import signal
import sys
import time
import traceback
from pathlib import Path

import torch

sys.path.append(str(Path(__file__).parents[1]))
from fuzzing.damaged_files import whatever_file_is_refused_everything_stays  # noqa: E402
from fuzzing.interruptions import (  # noqa: E402
    a_file_that_is_written_under_fire_is_whole,
    an_interrupted_loop_has_made_whole_steps,
    an_interrupted_page_is_the_old_one_or_the_new_one,
    an_interrupted_run_ends_like_a_straight_one,
    an_interrupted_server_writes_what_each_would_alone,
    an_interrupted_talk_goes_on_from_all_that_was_said,
)
from fuzzing.passes import (  # noqa: E402
    a_failed_pass_changes_no_cache,
    a_prompt_alone_or_in_a_list_gives_the_same_greedy_text,
    a_wide_search_finds_the_likeliest_text_of_all,
    any_two_engines_agree,
    cached_logits_are_the_uncached_ones,
)
from fuzzing.rewards import (  # noqa: E402
    equal_rewards_have_advantages_of_exactly_0,
    what_is_ruled_out_changes_no_number,
)

PROPERTIES = (
    equal_rewards_have_advantages_of_exactly_0,
    what_is_ruled_out_changes_no_number,
    cached_logits_are_the_uncached_ones,
    a_failed_pass_changes_no_cache,
    any_two_engines_agree,
    a_prompt_alone_or_in_a_list_gives_the_same_greedy_text,
    a_wide_search_finds_the_likeliest_text_of_all,
    whatever_file_is_refused_everything_stays,
    an_interrupted_run_ends_like_a_straight_one,
    an_interrupted_loop_has_made_whole_steps,
    a_file_that_is_written_under_fire_is_whole,
    an_interrupted_server_writes_what_each_would_alone,
    an_interrupted_talk_goes_on_from_all_that_was_said,
    an_interrupted_page_is_the_old_one_or_the_new_one,
)


def main() -> int:
    """Run the properties in turn; 1 where one failed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    names = [hold.__name__ for hold in PROPERTIES]
    parser.add_argument("--only", choices=names, metavar="PROPERTY", help="by its name")
    options = parser.parse_args()
    signal.signal(signal.SIGINT, signal.default_int_handler)
    torch.set_num_threads(1)
    chosen = [p for p in PROPERTIES if options.only in (None, p.__name__)]
    n_failed = 0
    seed = options.first
    end = time.monotonic() + 60 * options.minutes
    while time.monotonic() < end:
        for hold in chosen:
            try:
                hold(random.Random(seed))
            except Exception:
                n_failed += 1
                traceback.print_exc()
                again = f"--only {hold.__name__} --first {seed} --minutes 0.01"
                print(f"failed: python tests/tools/fuzz.py {again}\n", flush=True)
        seed += 1
    n_seeds = seed - options.first
    print(f"{n_seeds} seeds of {len(chosen)} properties, {n_failed} failed")
    return 1 if n_failed else 0


if __name__ == "__main__":
    sys.exit(main())
