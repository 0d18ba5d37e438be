"""The encoder and its decoder; `test_gpt` compares them with T5."""

from dataclasses import replace

import pytest
import torch
from common import random_tokens, rounding, seeded, shaken
from torch import nn
from torch.testing import assert_close

from companion import TRANSFORMER_BASE, EncoderDecoder, beam_search, generate
from companion.model.positions import POSITIONS

SOURCE = random_tokens(3, 7, d_vocab=11)
TARGET = random_tokens(3, 6, d_vocab=11, seed=1)
LENGTHS = torch.tensor([5, 1, 7])
BEGIN = torch.zeros(3, 1, dtype=torch.long)
N_TERMS = 2 * 32  # two layers of 32 hidden features


def tiny(d_vocab_source=None, shared=False, **options) -> EncoderDecoder:
    """Random weights, large enough for every token to matter."""
    small = replace(
        TRANSFORMER_BASE,
        d_vocab=11,
        context_length=12,
        d_model=8,
        n_heads=2,
        n_layers=2,
        dropout=0.0,
    )
    config = replace(small, **options)
    model = EncoderDecoder(
        config, seeded(), d_vocab_source=d_vocab_source, shared=shared
    )
    return shaken(model, seed=1)


@pytest.mark.parametrize("positions", POSITIONS)
@torch.no_grad()
def test_a_padded_batch_equals_each_sequence_alone(positions):
    for model in (
        tiny(positions=positions, pre_norm=True),
        tiny(positions=positions, engine="explicit"),
        tiny(positions=positions, n_kv_heads=1),
    ):
        together = model(SOURCE, TARGET, LENGTHS)
        for i, (n, t) in enumerate(zip(LENGTHS, (6, 1, 3), strict=True)):
            alone = model(SOURCE[i : i + 1, :n], TARGET[i : i + 1, :t])
            close = rounding(N_TERMS, alone)
            assert_close(together[i : i + 1, :t], alone, **close)

        # What stands in the padding does nothing.
        other = SOURCE.clone()
        other[1, 1:] = 10
        assert_close(model(other, TARGET, LENGTHS), together, **close)


@torch.no_grad()
def test_the_encoder_sees_what_comes_later_and_the_decoder_does_not():
    """Training shows the right target: it must not tell what is to be predicted."""
    model = tiny()
    before = model(SOURCE, TARGET)

    # The source's last token moves every feature.
    changed = SOURCE.clone()
    changed[:, 6] = (changed[:, 6] + 1) % 11
    assert ((model(changed, TARGET) - before).abs().amax(-1) > 1e-4).all()
    features, _ = model.encode(SOURCE)
    changed_features, _ = model.encode(changed)
    assert ((changed_features - features).abs().amax(-1) > 1e-4).all()

    # The target's tokens move nothing before them.
    for t in range(6):
        changed = TARGET.clone()
        changed[:, t] = (changed[:, t] + 1) % 11
        moved = (model(SOURCE, changed) - before).abs().amax(-1)
        assert (moved[:, :t] < 1e-6).all() and (moved[:, t:] > 1e-4).all()


def test_the_source_is_encoded_and_projected_once():
    model = tiny()
    calls = []
    reading = model.decoder.blocks[0].cross_attention.to_keys
    for part in (model.encoder, reading):
        part.register_forward_hook(lambda part, *_: calls.append(part))
    list(generate(model.read(SOURCE, LENGTHS), BEGIN, 6))
    assert calls == [model.encoder, reading]


@pytest.mark.parametrize("positions", ["sinusoidal", "rotary", "t5"])
def test_texts_of_a_batch_are_those_of_each_source_alone(positions):
    """Begun alike, cached or not, as one beam, and after prompts of any lengths."""
    model = tiny(positions=positions)
    reader = model.read(SOURCE, LENGTHS)
    prompts = [random_tokens(n, d_vocab=11, seed=n) for n in (4, 1, 2)]

    def texts(begin, use_cache=True):
        return torch.stack([*generate(reader, begin, 6, use_cache=use_cache)], 1)

    cached = texts(BEGIN)
    uncached = texts(BEGIN, use_cache=False)
    prompted = texts(prompts)
    assert torch.equal(cached, uncached)
    for i, n in enumerate(LENGTHS):
        alone = model.read(SOURCE[i : i + 1, :n])
        assert torch.equal(torch.stack([*generate(alone, BEGIN[0], 6)]), cached[i])
        assert torch.stack([*generate(alone, prompts[i], 6)]).equal(prompted[i])
        ((_, beam),) = beam_search(alone, BEGIN[0], 1, 6)
        assert beam == cached[i].tolist()


@torch.no_grad()
def test_the_scores_of_several_beams_are_log_probabilities():
    model = tiny()
    source = SOURCE[:1]
    beams = beam_search(model.read(source), BEGIN[0], 4, 5, end=3)
    assert len({tuple(tokens) for _, tokens in beams}) == 4
    for score, tokens in beams:
        target = torch.tensor([[0, *tokens]])
        log_probs = model(source, target[:, :-1]).log_softmax(-1)
        right = log_probs.gather(-1, target[:, 1:, None]).sum().item()
        close = rounding(N_TERMS, log_probs)["atol"]
        assert score == pytest.approx(right, abs=close)


@pytest.mark.parametrize("training", [True, False])
def test_reading_is_done_without_dropout_and_the_mode_given_back(training):
    model = tiny(dropout=0.5).train(training)
    reader = model.read(SOURCE)
    assert model.training == reader.training == training

    without_dropout = tiny().read(SOURCE)
    pairs = zip(reader.context, without_dropout.context, strict=True)
    for (keys_and_values, _), (expected, _) in pairs:
        assert_close(keys_and_values, expected)
    with pytest.raises(ValueError, match="vocabulary"):
        model.read(SOURCE + 20)
    assert all(part.training == training for part in model.modules())


@torch.no_grad()
def test_a_reader_has_a_mode_of_its_own_and_leaves_the_pair_in_its():
    """A training that writes a text in between goes on with all of its dropout."""
    model = tiny(dropout=0.5).train()
    reader = model.read(SOURCE).eval()
    assert not reader.training and all(part.training for part in model.modules())

    # Without dropout, and then with it.
    expected = tiny().read(SOURCE)(BEGIN)
    assert torch.equal(reader(BEGIN), expected)
    assert all(part.training for part in model.modules())
    assert not torch.equal(reader.train()(BEGIN), expected)
    model.eval()
    assert torch.equal(reader(BEGIN), expected)
    assert not any(part.training for part in model.modules())


def test_texts_are_written_without_dropout_whatever_mode_came_first():
    """The reader was made of a model in one mode; the decoder is in another by then."""
    model = tiny(dropout=0.5)
    reader = model.read(SOURCE)
    model.train()
    text = torch.stack([*generate(reader, BEGIN, 6)])
    expected = torch.stack([*generate(tiny().read(SOURCE), BEGIN, 6)])
    assert torch.equal(text, expected)
    assert model.decoder.training and not reader.training


def test_what_cannot_be_read_is_named():
    for source, target, lengths, words in (
        (SOURCE[:, :0], TARGET, None, r"empty: lengths are \[0, 0, 0\]"),
        (SOURCE, TARGET, torch.tensor([4, 0, 7]), r"empty: lengths are \[4, 0, 7\]"),
        (SOURCE, TARGET, torch.tensor([4, 8, 7]), "do not lie within 0 to 7"),
        (SOURCE, TARGET, torch.tensor([4, 7]), "2 lengths for 3 sources"),
        (SOURCE.repeat(1, 2), TARGET, None, "14 tokens, the context_length is 12"),
        (SOURCE + 20, TARGET, None, "the vocabulary is 0 to 10"),
        (SOURCE, TARGET[:2], None, "3 sources for 2 targets"),
    ):
        with pytest.raises(ValueError, match=words):
            tiny()(source, target, lengths)
        if len(target) == len(source):
            with pytest.raises(ValueError, match=words):
                tiny().read(source, lengths)


def test_the_base_model_is_the_papers_and_embeddings_are_shared_where_asked_for():
    """Vaswani et al. 2017, table 3: 65 million parameters, one embedding for all."""
    base = TRANSFORMER_BASE
    assert (base.n_heads, base.dropout) == (8, 0.1)
    assert base.scale_embeddings and not base.pre_norm
    with torch.device("meta"):
        model = EncoderDecoder(shared=True)
    assert 62e6 < sum(p.numel() for p in model.parameters()) < 66e6
    assert isinstance(model.encoder.norm, nn.Identity)  # post-norm blocks end with one
    assert model.encoder.embedding.weight is model.decoder.embedding.weight
    assert model.decoder.unembedding.weight is model.decoder.embedding.weight

    apart = tiny(d_vocab_source=29)
    assert apart.encoder.embedding.weight.shape == (29, 8)
    with pytest.raises(ValueError, match="source has 29 tokens, the target 11"):
        tiny(d_vocab_source=29, shared=True)
