"""Rollouts: groups of answers that are drawn, as chapter 15 needs them."""

import torch
from pairs import pair, reference

import companion
from companion.pretrained.gpt2 import gpt2_weights
from companion.training import reward

# Chapter 15's second model, of GPT-2's parts, which both can build.
SMALL = companion.GPTConfig(
    d_vocab=72, context_length=64, d_model=128, n_heads=4, n_layers=4
)


def with_weights_of(model: torch.nn.Module) -> companion.GPT:
    """Our model with the weights of `transformers`', which gives the same logits."""
    tensors = {
        name.removeprefix("transformer."): x
        for name, x in model.state_dict().items()
        if name.startswith("transformer.")
    }
    weights = gpt2_weights(tensors, SMALL.n_layers)
    weights["unembedding.weight"] = weights["embedding.weight"]
    gpt = companion.GPT(SMALL).eval()
    gpt.load_state_dict(weights)

    tokens = torch.randint(SMALL.d_vocab, (2, 30))
    torch.testing.assert_close(gpt(tokens), model(tokens).logits)
    return gpt


@torch.inference_mode()
def rollouts(n_new: int = 11) -> list[dict]:
    """8 answers to each of 16 prompts of 16 to 31 tokens, with the same weights."""
    gpt2 = reference(SMALL).eval()
    gpt = with_weights_of(gpt2)
    prompts = [torch.randint(SMALL.d_vocab, (16 + i,)) for i in range(16)]

    def draw():
        reward.roll_out(gpt, prompts, n_answers=8, n_new=n_new)

    def draw_gpt2():
        flipped = [prompt.flip(0) for prompt in prompts]
        padded = torch.nn.utils.rnn.pad_sequence(flipped, True, -1).flip(1)
        gpt2.generate(
            padded.clamp(min=0),
            attention_mask=(padded >= 0).long(),
            max_new_tokens=n_new,
            min_new_tokens=n_new,
            do_sample=True,
            top_k=0,
            num_return_sequences=8,
            pad_token_id=0,
        )

    work = (16 * 8 * n_new,) * 2
    title = "8 drawn answers to each of 16 prompts, 0.8 M parameters"
    return [pair(title, "`transformers`", work, draw, draw_gpt2, 7)]
