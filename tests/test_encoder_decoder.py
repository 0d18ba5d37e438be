"""The encoder and its decoder: padding, positions, caches, beams, bad input."""

from dataclasses import replace

import pytest
import torch
from common import random_tokens as draw_tokens
from common import seeded, shaken
from torch import nn
from torch.testing import assert_close

from companion import (
    TRANSFORMER_BASE,
    EncoderDecoder,
    beam_search,
    generate,
    muon,
    next_token_loss,
    train,
)

POSITIONS = ["learned", "sinusoidal", "rotary", "alibi", "t5", "none"]
LENGTHS = torch.tensor([5, 2, 7])


def random_tokens(*shape, seed=0):
    return draw_tokens(*shape, d_vocab=11, seed=seed)


def tiny(d_source=None, shared=False, **options) -> EncoderDecoder:
    """Random weights, large enough for every token to matter."""
    sizes = {"d_vocab": 11, "context_length": 12, "d_model": 8, "n_heads": 2}
    sizes |= {"n_layers": 2, "dropout": 0.0}
    config = replace(TRANSFORMER_BASE, **sizes | options)
    model = EncoderDecoder(config, seeded(), d_source=d_source, shared=shared)
    return shaken(model, seed=1)


@pytest.mark.parametrize("engine", ["fused", "explicit"])
@pytest.mark.parametrize("pre_norm", [True, False])
@pytest.mark.parametrize("positions", POSITIONS)
@torch.no_grad()
def test_a_padded_batch_equals_each_sequence_alone(positions, pre_norm, engine):
    model = tiny(positions=positions, pre_norm=pre_norm, engine=engine)
    source, target = random_tokens(3, 7), random_tokens(3, 6, seed=1)
    together = model(source, target, LENGTHS)
    for i, (n, t) in enumerate(zip(LENGTHS, (6, 1, 3), strict=True)):
        alone = model(source[i : i + 1, :n], target[i : i + 1, :t])
        assert_close(together[i : i + 1, :t], alone, atol=1e-5, rtol=0)
    other = source.clone()
    other[1, 2:] = 10
    assert_close(model(other, target, LENGTHS), together, atol=1e-5, rtol=0)


@torch.no_grad()
def test_the_model_is_pytorchs_transformer_with_the_same_weights():
    """Post-norm, with sinusoidal positions and the embeddings put in by hand."""
    model = tiny(positions="none", norm="layer", scaled=False)
    theirs = nn.Transformer(8, 2, 2, 2, 32, 0.0, "relu", batch_first=True)
    theirs.encoder.norm = theirs.decoder.norm = None
    theirs.encoder.use_nested_tensor = False

    def attention(name, part):
        three = (part.to_queries, part.to_keys, part.to_values)
        return {
            f"{name}.in_proj_weight": torch.cat([p.weight for p in three]),
            f"{name}.in_proj_bias": torch.cat([p.bias for p in three]),
        } | layer(f"{name}.out_proj", part.to_output)

    def layer(name, part):
        gain = part.gain if hasattr(part, "gain") else part.weight
        return {f"{name}.weight": gain, f"{name}.bias": part.bias}

    weights = {}
    for stack, blocks in (
        ("encoder", model.encoder.blocks),
        ("decoder", model.decoder.blocks),
    ):
        for i, block in enumerate(blocks):
            at = f"{stack}.layers.{i}."
            norms = [block.attention_norm, block.feed_forward_norm]
            weights |= attention(f"{at}self_attn", block.attention)
            if stack == "decoder":
                weights |= attention(f"{at}multihead_attn", block.cross_attention)
                norms.insert(1, block.cross_attention_norm)
            weights |= layer(f"{at}linear1", block.feed_forward.to_hidden)
            weights |= layer(f"{at}linear2", block.feed_forward.to_output)
            for k, norm in enumerate(norms):
                weights |= layer(f"{at}norm{k + 1}", norm)
    theirs.load_state_dict(weights)
    theirs.eval()
    source, target = random_tokens(3, 7), random_tokens(3, 6, seed=1)
    hidden = torch.arange(7) >= LENGTHS[:, None]
    features = theirs(
        model.encoder.embedding(source),
        model.decoder.embedding(target),
        tgt_mask=~torch.ones(6, 6, dtype=torch.bool).tril(),
        src_key_padding_mask=hidden,
        memory_key_padding_mask=hidden,
    )
    expected = features @ model.decoder.unembedding.weight.T
    assert_close(model(source, target, LENGTHS), expected, atol=1e-5, rtol=0)


@pytest.mark.parametrize("positions", POSITIONS)
@torch.no_grad()
def test_cached_decoding_equals_the_uncached_however_the_target_is_cut(positions):
    model = tiny(positions=positions)
    source, target = random_tokens(3, 7), random_tokens(3, 6, seed=1)
    expected = model(source, target, LENGTHS)
    for cuts in ((0, 6), (0, 1, 2, 3, 4, 5, 6), (0, 4, 6)):
        reader = model.given(source, LENGTHS)
        caches = reader.new_caches()
        pieces = [
            reader(target[:, a:b], caches) for a, b in zip(cuts, cuts[1:], strict=False)
        ]
        assert_close(torch.cat(pieces, 1), expected, atol=1e-5, rtol=0)


def test_the_source_is_encoded_and_projected_once():
    model, calls = tiny(), {"encoder": 0, "keys": 0}

    def count(name):
        return lambda *_: calls.__setitem__(name, calls[name] + 1)

    model.encoder.register_forward_hook(count("encoder"))
    cross = model.decoder.blocks[0].cross_attention
    cross.to_keys.register_forward_hook(count("keys"))
    source, begin = random_tokens(3, 7), torch.zeros(3, 1, dtype=torch.long)
    list(generate(model.given(source, LENGTHS), begin, 6))
    assert calls == {"encoder": 1, "keys": 1}


@torch.no_grad()
def test_the_decoder_takes_the_caches_it_makes_itself():
    model, source, target = tiny(), random_tokens(3, 7), random_tokens(3, 6, seed=1)
    reading, caches = model.given(source).reading, model.decoder.new_caches()
    pieces = [
        model.decoder(x, caches, reading=reading) for x in target.split([2, 1, 3], 1)
    ]
    assert_close(torch.cat(pieces, 1), model(source, target), atol=1e-5, rtol=0)


@pytest.mark.parametrize("positions", ["sinusoidal", "rotary", "t5"])
def test_prompts_of_different_lengths_go_on_from_their_own_sources(positions):
    model, source = tiny(positions=positions), random_tokens(3, 7)
    prompts = [random_tokens(n, seed=n) for n in (4, 1, 2)]
    reader = model.given(source, LENGTHS)
    together = torch.stack(list(generate(reader, prompts, 6)), 1)
    for i, (prompt, n) in enumerate(zip(prompts, LENGTHS, strict=True)):
        alone = generate(model.given(source[i : i + 1, :n]), prompt, 6)
        assert torch.equal(torch.stack(list(alone)), together[i])


@pytest.mark.parametrize("training", [True, False])
def test_reading_is_done_without_dropout_and_the_mode_given_back(training):
    model, source = tiny(dropout=0.5).train(training), random_tokens(3, 7)
    reader, still = model.given(source), tiny().given(source)
    assert model.training == reader.training == training
    for ours, right in zip(reader.reading, still.reading, strict=True):
        assert_close(ours[0], right[0])
    with pytest.raises(ValueError, match="vocabulary"):
        model.given(source + 20)
    assert all(part.training == training for part in model.modules())


def test_the_encoder_sees_what_comes_later_and_the_decoder_does_not():
    model, source, target = tiny(), random_tokens(1, 7), random_tokens(1, 6, seed=1)
    other = source.clone()
    other[0, -1] = (other[0, -1] + 1) % 11
    before, after = (model.encode(x)[0][0, 0] for x in (source, other))
    assert (before - after).abs().max() > 1e-3
    changed = target.clone()
    changed[0, -1] = (changed[0, -1] + 1) % 11
    logits = [model(source, x)[:, :-1] for x in (target, changed)]
    assert_close(*logits, atol=1e-6, rtol=0)


@pytest.mark.parametrize("positions", POSITIONS)
def test_greedy_text_of_a_batch_is_that_of_each_source_alone(positions):
    model, source = tiny(positions=positions), random_tokens(3, 7)
    reader, begin = model.given(source, LENGTHS), torch.zeros(3, 1, dtype=torch.long)
    together = torch.stack(list(generate(reader, begin, 8)), 1)
    uncached = torch.stack(list(generate(reader, begin, 8, use_cache=False)), 1)
    assert torch.equal(together, uncached)
    for i, n in enumerate(LENGTHS):
        alone = model.given(source[i : i + 1, :n])
        new = torch.stack(list(generate(alone, begin[:1], 8)), 1)
        assert torch.equal(new[0], together[i])
        ((_, beam),) = beam_search(alone, begin[0], 1, 8)
        assert beam == new[0].tolist()


@torch.no_grad()
def test_beam_search_scores_are_the_model_s_log_probabilities():
    model, source = tiny(), random_tokens(1, 7)
    begin = torch.zeros(1, dtype=torch.long)
    found = beam_search(model.given(source), begin, 4, 5, end=3)
    assert len({tuple(tokens) for _, tokens in found}) == 4
    for score, tokens in found:
        target = torch.tensor([[0, *tokens]])
        chances = model(source, target[:, :-1]).log_softmax(-1)
        right = chances.gather(-1, target[:, 1:, None]).sum().item()
        assert score == pytest.approx(right, abs=1e-4)


def test_embeddings_are_shared_where_asked_for():
    apart, shared = tiny(tied=False), tiny(shared=True)
    assert apart.encoder.embedding.weight is not apart.decoder.embedding.weight
    assert shared.encoder.embedding.weight is shared.decoder.embedding.weight
    assert shared.decoder.unembedding.weight is shared.decoder.embedding.weight
    assert tiny(d_source=29).encoder.embedding.weight.shape == (29, 8)
    with pytest.raises(ValueError, match="source has 29 tokens, the target 11"):
        tiny(d_source=29, shared=True)


def test_it_learns_to_copy_a_batch():
    model, source = tiny(), random_tokens(4, 6)
    target = torch.cat([torch.zeros(4, 1, dtype=torch.long), source], 1)
    lengths = torch.full((4,), 6)
    batch = (source, target[:, :-1], lengths, target[:, 1:])
    losses = train(model, muon(model), [batch] * 130)
    assert losses[-1] < 0.1 < losses[0]
    assert losses[0] == pytest.approx(
        next_token_loss(tiny()(*batch[:3]), batch[3]).item(), abs=1e-4
    )


@pytest.mark.parametrize(
    "source, lengths, words",
    [
        (torch.zeros(2, 0, dtype=torch.long), None, "empty"),
        (random_tokens(2, 4), torch.tensor([4, 0]), r"empty: lengths are \[4, 0\]"),
        (random_tokens(2, 13), None, "13 tokens, the context_length is 12"),
        (random_tokens(2, 4), torch.tensor([4, 5]), "do not lie within 0 to 4"),
        (random_tokens(2, 4) + 20, None, "the vocabulary is 0 to 10"),
    ],
)
def test_sources_that_cannot_be_read(source, lengths, words):
    for call in (tiny().given, lambda *x: tiny()(x[0], random_tokens(2, 3), x[1])):
        with pytest.raises(ValueError, match=words):
            call(source, lengths)


def test_beams_go_on_from_one_source():
    model, source = tiny(), random_tokens(2, 7)
    with pytest.raises(ValueError, match="queries are .1, 2. .* keys .2, 2."):
        beam_search(model.given(source), torch.zeros(1, dtype=torch.long), 2, 3)
    with pytest.raises(ValueError, match="queries are .3, 2. .* keys .2, 2."):
        next(generate(model.given(source), torch.zeros(3, 1, dtype=torch.long), 3))


@torch.no_grad()
def test_a_source_of_one_token_or_of_the_whole_context_is_read():
    model, target = tiny(), random_tokens(2, 3, seed=1)
    source = random_tokens(2, 12)
    assert model(source, target).isfinite().all()
    alone = model(source[:, :1], target)
    padded = model(source, target, torch.tensor([1, 1]))
    assert_close(padded, alone, atol=1e-5, rtol=0)


def test_the_base_model_is_that_of_the_paper():
    """Vaswani et al. 2017, table 3: 65 million parameters, one embedding for all."""
    base = TRANSFORMER_BASE
    assert (base.n_layers, base.d_model, base.n_heads) == (6, 512, 8)
    assert (base.dropout, base.d_vocab, base.context_length) == (0.1, 37_000, 512)
    with torch.device("meta"):
        model = EncoderDecoder(shared=True)
    n = sum(p.numel() for p in model.parameters())
    assert 62e6 < n < 66e6
    assert model.decoder.blocks[0].feed_forward.to_hidden.weight.shape[0] == 2048
