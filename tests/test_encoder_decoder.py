"""The encoder and its decoder: padding, positions, caches, beams, bad input."""

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from companion import (
    EncoderDecoder,
    EncoderDecoderConfig,
    beam_search,
    generate,
    muon,
    next_token_loss,
    train,
)

POSITIONS = ["learned", "sinusoidal", "rotary", "alibi", "t5", "none"]
LENGTHS = torch.tensor([5, 2, 7])


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


def random_tokens(*shape, d_vocab=11, seed=0):
    return torch.randint(d_vocab, shape, generator=seeded(seed))


def tiny(**options) -> EncoderDecoder:
    """Random weights, large enough for every token to matter."""
    sizes = {"d_vocab": 11, "context_length": 12, "d_model": 8, "n_heads": 2}
    config = EncoderDecoderConfig(**sizes | {"n_layers": 2, "dropout": 0.0} | options)
    model, generator = EncoderDecoder(config, seeded()), seeded(1)
    with torch.no_grad():
        for parameter in model.parameters():
            noise = 0.3 * torch.randn(parameter.shape, generator=generator)
            parameter.copy_(noise if parameter.dim() == 2 else parameter + noise)
    return model.eval()


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
