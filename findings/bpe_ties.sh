#!/usr/bin/env bash
# rustbpe 0.1.0, tokenizers 0.23.3, tiktoken 0.14.0 (its educational trainer)
#
# What happens: three trainers of byte-level BPE get the same text, in which many pairs
# are equally frequent, and learn different merges. rustbpe takes the pair with the
# smallest bytes, so " a" first. tokenizers orders by its own alphabet, in which the
# space is a letter that comes after all others, so "ab" first. tiktoken's educational
# trainer takes the pair that it met first, " c".
# What one would expect: the same merges, for all three describe one algorithm, and the
# text is cut into words in the same way.
# For whom it matters: who trains on a small text, where ties are common, and compares
# merge by merge. It is no fault of theirs: BPE doesn't say how a tie is broken.
# Seen on 28 November 2026, Linux x86-64, Python 3.11:
#   tiktoken    [' c', ' cd', ' a', ' ab', ' x', ' xy']
#   rustbpe     [' a', ' c', ' x', ' ab', ' cd', ' xy']
#   tokenizers  ['ab', 'cd', 'xy', ' ab', ' cd', ' xy']
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -r "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet rustbpe==0.1.0 tokenizers==0.23.3 tiktoken==0.14.0
"$folder/env/bin/python" - <<'PYTHON'
import json

import rustbpe
from tiktoken._educational import bpe_train
from tokenizers import Regex, Tokenizer, models, pre_tokenizers, trainers

TEXT = " cd ab xy cd ab xy"  # each of its six pairs occurs twice
WORDS = " [a-z]+"
SIZE = 256 + 6


def in_order(ranks):
    """The merges of a table from bytes to ranks, first learnt first."""
    return [pair.decode() for pair, rank in sorted(ranks, key=lambda x: x[1])[256:]]


merges = {}
table = bpe_train(TEXT, SIZE, WORDS, visualise=None)
merges["tiktoken"] = in_order(table.items())

theirs = rustbpe.Tokenizer()
theirs.train_from_iterator([TEXT], SIZE, pattern=WORDS)
merges["rustbpe"] = in_order(theirs.get_mergeable_ranks())

model = Tokenizer(models.BPE())
cut = pre_tokenizers.Split(Regex(WORDS), "removed", invert=True)
as_bytes = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
model.pre_tokenizer = pre_tokenizers.Sequence([cut, as_bytes])
alphabet = pre_tokenizers.ByteLevel.alphabet()
trainer = trainers.BpeTrainer(
    vocab_size=SIZE, initial_alphabet=alphabet, show_progress=False
)
model.train_from_iterator([TEXT], trainer)
pairs = json.loads(model.to_str())["model"]["merges"]
merges["tokenizers"] = ["".join(pair).replace("\u0120", " ") for pair in pairs]

for name, learnt in merges.items():
    print(f"{name:<11} {learnt}")
assert merges == {
    "tiktoken": [" c", " cd", " a", " ab", " x", " xy"],
    "rustbpe": [" a", " c", " x", " ab", " cd", " xy"],
    "tokenizers": ["ab", "cd", "xy", " ab", " cd", " xy"],
}, merges
PYTHON
