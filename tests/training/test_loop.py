"""Training against loops written out; `test_optimizers` has what takes its steps."""

import math
import os
import signal
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from common import EXACT, random, rounding, seeded
from tiny import T, random_tokens, tiny_gpt
from torch import nn
from torch.testing import assert_close

from companion import (
    GPT,
    AdamW,
    GPTConfig,
    batches,
    bits_per_character,
    device,
    evaluate,
    muon,
    next_token_loss,
    train,
)
from companion.pretrained.quantized import PackedLinear, prepack
from companion.training import loop
from companion.training.loop import clip_gradients, read_finite

EPSILON = torch.finfo(torch.float32).eps


def tiny_gpt_and_batch() -> tuple[GPT, tuple[torch.Tensor, torch.Tensor]]:
    batch = (random_tokens(2, T), random_tokens(2, T))
    return tiny_gpt(), batch


def copies(model: nn.Module) -> list[torch.Tensor]:
    return [parameter.detach().clone() for parameter in model.parameters()]


@pytest.mark.parametrize("shape", [(4,), (2, 3, 4)])
def test_the_loss_is_the_mean_surprise_at_the_targets(shape):
    logits = 3 * random(*shape, 13)
    targets = random_tokens(*shape)
    surprises = []
    pairs = zip(logits.view(-1, 13).tolist(), targets.flatten().tolist(), strict=True)
    for row, target in pairs:
        surprises.append(math.log(sum(map(math.exp, row))) - row[target])
    expected = sum(surprises) / len(surprises)
    close = rounding(13, logits)["atol"]
    assert next_token_loss(logits, targets).item() == pytest.approx(expected, abs=close)


def test_smoothing_spreads_its_share_over_all_tokens_and_padding_does_not_count():
    logits = random(2, 4, 13)
    targets = random_tokens(2, 4)
    chances = logits.log_softmax(-1)
    right = -chances.gather(-1, targets[..., None])[..., 0]
    each = 0.9 * right - 0.1 * chances.mean(-1)
    assert_close(next_token_loss(logits, targets, smoothing=0.1), each.mean())

    targets[1, 1:] = -100
    seen = torch.cat([right[0], right[1, :1]])
    assert_close(next_token_loss(logits, targets), seen.mean())


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_logits_of_16_bits_have_the_loss_of_the_same_numbers(dtype, smoothing):
    logits = (8 * random(3, 40, 1000)).to(dtype)
    targets = random_tokens(3, 40)
    right = next_token_loss(logits.double(), targets, smoothing)
    assert right.dtype == torch.float64
    loss = next_token_loss(logits, targets, smoothing)
    assert loss.dtype == torch.float32
    assert_close(loss, right.float())


class Table(nn.Module):
    """A model whose logits depend on one token alone, so that no product is rounded."""

    def __init__(self, dtype):
        super().__init__()
        self.config = GPTConfig(d_vocab=13, context_length=T)
        self.logits = nn.Parameter((3 * random(13, 13)).to(dtype))

    def forward(self, tokens):
        return self.logits[tokens]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_a_model_of_16_bits_is_judged_as_its_logits_are(dtype):
    """Whatever the batch size; and a step has the same loss."""
    model = Table(dtype)
    tokens = random_tokens(10 * T * 13 + 1)
    wide = Table(dtype).double()
    right = evaluate(wide, tokens)
    for size in (1, 3, 64):
        assert evaluate(model, tokens, size) == pytest.approx(right, rel=13 * EPSILON)

    batch = tokens[:-1].view(-1, T), tokens[1:].view(-1, T)
    (loss,) = train(model, torch.optim.SGD(model.parameters(), 0.1), [batch])
    assert loss == pytest.approx(right, rel=13 * EPSILON)  # 13 logits are summed


def test_what_the_optimizer_does_not_move_shortens_no_step():
    """As if it were frozen, whose gradients would else pile up and be clipped, too."""
    weights = []
    for frozen in (False, True):
        model, batch = tiny_gpt_and_batch()
        last = model.blocks[-1]
        if frozen:
            model.requires_grad_(False)
            last.requires_grad_(True)
        sgd = torch.optim.SGD(last.parameters(), 0.1)
        train(model, sgd, [batch, batch, batch], clip=0.01)
        weights.append(torch.cat([p.detach().flatten() for p in model.parameters()]))
    assert torch.equal(*weights)


def with_a_parameter_outside(slope):
    """An optimizer moves a model's parameters and another, with such a gradient."""
    model, batch = tiny_gpt_and_batch()
    outside = torch.nn.Parameter(torch.zeros(2))
    outside.register_hook(lambda gradient: slope * gradient)
    optimizer = torch.optim.SGD([*model.parameters(), outside], lr=1.0)

    def loss_function(logits, targets):
        return next_token_loss(logits, targets) + outside.sum()

    step = partial(train, model, optimizer, [batch], loss_function=loss_function)
    return [*model.parameters(), outside], step


def test_what_the_optimizer_moves_outside_the_model_is_clipped_with_it():
    parameters, step = with_a_parameter_outside(1e3)
    before = [p.detach().clone() for p in parameters]
    step(clip=0.5)
    changes = zip(before, parameters, strict=True)
    length = sum((new - old).square().sum() for old, new in changes).sqrt()
    # Weights below 1 hold a step to 1e-7, of some 1,000 numbers.
    assert length.item() == pytest.approx(0.5, rel=1e-4)


def test_what_is_not_finite_outside_the_model_stops_the_step():
    parameters, step = with_a_parameter_outside(math.inf)
    before = [p.detach().clone() for p in parameters]
    with pytest.raises(ValueError, match="the gradients' norm inf at step 0"):
        step()
    assert all(map(torch.equal, before, parameters))


@pytest.mark.parametrize("dtype, scale", [(torch.bfloat16, 1), (torch.float16, 300)])
def test_gradients_of_16_bits_are_measured_in_32(dtype, scale):
    """The length of 60,000 numbers about 300 is beyond float16."""
    model = nn.Linear(300, 200).to(dtype)
    for i, p in enumerate(model.parameters()):
        p.grad = (scale * random(*p.shape, seed=i)).to(dtype)
    flat = torch.cat([p.grad.double().flatten() for p in model.parameters()])

    norm = clip_gradients([*model.parameters()], 0.5)
    by_chance = len(flat) ** 0.5 * EPSILON  # so far off is a sum of so many roundings
    assert norm.item() == pytest.approx(flat.norm().item(), rel=by_chance)
    clipped = torch.cat([p.grad.double().flatten() for p in model.parameters()])
    # Each number is rounded by half an epsilon at most.
    half = torch.finfo(dtype).eps / 2
    assert clipped.norm().item() == pytest.approx(0.5, rel=half)
    assert read_finite(0, torch.ones((), dtype=dtype), norm) == 1


def test_logits_and_targets_of_other_shapes_are_refused():
    with pytest.raises(ValueError, match=r"\(2, 4\).*\(2, 3\)"):
        next_token_loss(random(2, 4, 13), random_tokens(2, 3))
    with pytest.raises(ValueError, match=r"\(2, 6\).*\(3, 4\)"):
        next_token_loss(random(2, 6, 13), random_tokens(3, 4))
    with pytest.raises(ValueError, match="targets .* integers"):
        next_token_loss(random(2, 4, 13), random(2, 4))


@pytest.mark.parametrize("optimizer", [muon, lambda m: AdamW(m.parameters(), 0.01)])
def test_training_learns_a_repeated_batch(optimizer):
    model = tiny_gpt()
    tokens = random_tokens(2, T + 1)
    losses = train(model, optimizer(model), [(tokens[:, :-1], tokens[:, 1:])] * 200)
    assert len(losses) == 200
    assert losses[0] == pytest.approx(math.log(13), abs=0.1)  # logits about √8 · 0.02
    assert losses[-1] < 0.3


def test_train_is_the_plain_loop_of_pytorch():
    def data():
        return batches(
            random_tokens(200),
            batch_size=3,
            context_length=T,
            n_steps=6,
            generator=seeded(1),
        )

    def sgd(model):
        return torch.optim.SGD(model.parameters(), 0.5, momentum=0.9)

    seen = []

    def on_step(step, loss):
        seen.append((step, loss))

    model = tiny_gpt().double()  # so that rounding hides nothing
    losses = train(model, sgd(model), data(), clip=0.2, on_step=on_step)

    plain = tiny_gpt().double()
    optimizer = sgd(plain)
    expected = []
    for inputs, targets in data():
        optimizer.zero_grad()
        loss = F.cross_entropy(plain(inputs).flatten(0, 1), targets.flatten())
        loss.backward()
        nn.utils.clip_grad_norm_(plain.parameters(), 0.2)
        optimizer.step()
        expected.append(loss.item())
    assert_close(losses, expected, **EXACT)
    assert_close(copies(model), copies(plain), **EXACT)
    assert seen == list(enumerate(losses))


def test_one_step_of_gradient_descent_is_as_long_as_the_clip():
    model = tiny_gpt().double()
    clip = 0.1
    before = copies(model)
    batch = (random_tokens(2, T), random_tokens(2, T, seed=1))
    train(model, torch.optim.SGD(model.parameters(), 1.0), [batch], clip=clip)
    steps = [a - b for a, b in zip(copies(model), before, strict=True)]
    length = sum(step.square().sum().item() for step in steps) ** 0.5
    # PyTorch adds 1e-6 to a length, here more than 0.1, before it divides by it.
    assert clip * (1 - 1e-5) < length <= clip * (1 + 1e-10)


@pytest.mark.parametrize("bad", [math.nan, math.inf])
@pytest.mark.parametrize("place", ["loss", "gradient"])
def test_what_is_not_finite_is_named_with_its_step_before_any_weight_changes(
    place, bad
):
    model, batch = tiny_gpt_and_batch()
    factor = {"loss": 1.0, "gradient": 1.0}
    seen = []
    model.norm.gain.register_hook(lambda gradient: gradient * factor["gradient"])

    def loss_function(logits, targets):
        return next_token_loss(logits, targets) * factor["loss"]

    def on_step(step, loss):
        if step == 12:
            factor[place] = bad
            seen.extend(copies(model))

    with pytest.raises(ValueError, match="(nan|inf).* at step 13: the learning rate"):
        train(
            model,
            AdamW(model.parameters()),
            [batch] * 6,
            loss_function=loss_function,
            on_step=on_step,
            first_step=10,
        )
    assert all(map(torch.equal, seen, model.parameters()))


def test_a_batch_without_targets_is_named_as_a_cause():
    model = tiny_gpt()
    nothing = torch.full((2, T), -100)
    with pytest.raises(ValueError, match="at step 0: none of the 10 targets"):
        train(model, AdamW(model.parameters()), [(random_tokens(2, T), nothing)])


def frozen():
    model = tiny_gpt().requires_grad_(False)
    return model, AdamW(model.parameters())


def of_another_model():
    return tiny_gpt(), AdamW(tiny_gpt().parameters())


def of_frozen_parameters():
    model = tiny_gpt()
    model.norm.requires_grad_(False)
    return model, AdamW(model.norm.parameters())


def with_new_parameters():
    """The optimizer holds those that the model had before."""
    model = tiny_gpt()
    optimizer = AdamW(model.parameters())
    model.load_state_dict(tiny_gpt().state_dict(), assign=True)
    return model, optimizer


def laid_out():
    model = prepack(tiny_gpt())
    return model, AdamW(model.parameters())


def packed():
    model = tiny_gpt()
    layer = model.blocks[0].feed_forward
    layer.to_output = PackedLinear(torch.ones(8, 32))
    return model, AdamW(model.parameters())


@pytest.mark.parametrize(
    "make, words",
    [
        (frozen, "all parameters of GPT are frozen"),
        (of_another_model, "AdamW holds no parameter of the model"),
        (of_frozen_parameters, "AdamW holds no parameter of the model"),
        (with_new_parameters, "AdamW holds no parameter of the model"),
        (laid_out, "to_queries is a PrepackedLinear, whose weights are laid out"),
        (packed, "to_output is a PackedLinear, whose weights are laid out"),
    ],
)
def test_what_can_not_be_trained_is_refused_before_a_batch_is_drawn(make, words):
    if make is laid_out and not torch.backends.mkldnn.is_available():
        pytest.skip("no oneDNN")
    model, optimizer = make()
    data = iter([(random_tokens(2, T), random_tokens(2, T))])
    with pytest.raises(ValueError, match=words):
        train(model, optimizer, data)
    assert next(data)


def test_a_loss_that_moves_nothing_is_refused():
    """Also where gradients of an earlier step are still there."""
    model, batch = tiny_gpt_and_batch()
    for p in model.parameters():
        p.grad = torch.ones_like(p)
    before = copies(model)
    elsewhere = torch.ones((), requires_grad=True)
    for loss_function in (
        lambda logits, targets: next_token_loss(logits.detach(), targets),
        lambda logits, targets: 2 * elsewhere,
    ):
        with pytest.raises(ValueError, match="nothing has a gradient at step 0"):
            optimizer = AdamW(model.parameters())
            train(model, optimizer, [batch], loss_function=loss_function)
    with pytest.raises(ValueError, match="nothing has a gradient"), torch.no_grad():
        train(model, AdamW(model.parameters()), [batch])
    assert all(map(torch.equal, before, model.parameters()))


def test_some_parameters_may_be_frozen_and_some_left_out():
    model, batch = tiny_gpt_and_batch()
    model.embedding.requires_grad_(False)
    before = copies(model)
    train(model, AdamW(model.blocks[0].parameters()), [batch])
    for old, (name, new) in zip(before, model.named_parameters(), strict=True):
        assert torch.equal(old, new) != name.startswith("blocks.0."), name


@pytest.mark.parametrize("place", ["forward", "optimizer", "on_step"])
@pytest.mark.parametrize("n_times", [1, 2, 5])
def test_ctrl_c_never_cuts_a_step_in_two(place, n_times, capsys):
    """Wherever it falls, the step is made whole, and no other after it."""
    model, batch = tiny_gpt_and_batch()
    optimizer = AdamW(model.parameters())

    def press(*_):
        for _ in range(n_times):
            signal.raise_signal(signal.SIGINT)

    on_step = None
    if place == "forward":
        model.blocks[0].register_forward_hook(press)
    elif place == "optimizer":
        optimizer.register_step_pre_hook(press)
    else:
        on_step = press
    losses = train(model, optimizer, [batch] * 5, on_step=on_step)
    assert len(losses) == 1 and "after 1 step" in capsys.readouterr().out

    same = tiny_gpt()
    train(same, AdamW(same.parameters()), [batch])
    assert all(map(torch.equal, model.parameters(), same.parameters()))
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_what_never_ends_is_broken_off_when_patience_is_over(monkeypatch):
    monkeypatch.setattr(loop, "PATIENCE", 0)
    model, batch = tiny_gpt_and_batch()

    def hang(*_):
        for _ in range(10):
            signal.raise_signal(signal.SIGINT)
        raise AssertionError("not reached")

    with pytest.raises(KeyboardInterrupt):
        train(model, AdamW(model.parameters()), [batch], on_step=hang)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_training_in_another_thread_leaves_signals_alone():
    model, batch = tiny_gpt_and_batch()
    with ThreadPoolExecutor() as pool:
        work = pool.submit(train, model, AdamW(model.parameters()), [batch] * 2)
        assert len(work.result()) == 2


def test_train_trains_with_dropout_and_evaluate_measures_without():
    model = tiny_gpt(dropout=0.5)
    tokens = random_tokens(30)
    assert evaluate(model, tokens) == evaluate(model, tokens)
    modes = []
    model.eval().register_forward_hook(lambda *call: modes.append(model.training))
    batch = (random_tokens(2, T), random_tokens(2, T))
    train(model, AdamW(model.parameters()), [batch])
    assert modes == [True]


@pytest.mark.parametrize("n", [2, T, T + 1, T + 2, 3 * T + 3])
@torch.no_grad()
def test_evaluate_predicts_every_token_but_the_first_once(n):
    model = tiny_gpt().double()
    tokens = random_tokens(n)
    for parameter in model.parameters():
        parameter.add_(random(*parameter.shape), alpha=0.3)
    surprises = []
    for i in range(1, n):
        start = (i - 1) // T * T  # the window in which token i is predicted
        logits = model(tokens[None, start:i])[0, -1]
        surprises.append(-logits.log_softmax(-1)[tokens[i]].item())
    expected = sum(surprises) / (n - 1)
    for size in (1, 2, 64):
        assert_close(evaluate(model, tokens, size), expected, **EXACT)


def test_evaluate_keeps_no_graph():
    model = tiny_gpt()
    graphs = []
    model.register_forward_hook(lambda *call: graphs.append(call[-1].grad_fn))
    evaluate(model, random_tokens(20))
    assert graphs and not any(graphs)


def test_evaluate_gives_the_mode_back_whatever_is_raised():
    model = tiny_gpt().train()
    with pytest.raises(ValueError, match="vocabulary"):
        evaluate(model, random_tokens(20) + 13)
    assert all(part.training for part in model.modules())


@pytest.mark.parametrize("n", [0, 1])
def test_a_text_without_a_prediction_is_not_evaluated(n):
    with pytest.raises(
        ValueError, match=f"^{n} tokens hold no prediction; it takes 2 or more"
    ):
        evaluate(tiny_gpt(), random_tokens(n))


def test_bfloat16_is_faster_where_the_processor_multiplies_it():
    flags = Path("/proc/cpuinfo")
    answers_as_it_is = not os.environ.get("PROCESSOR")  # tests/tools/elsewhere.py
    if answers_as_it_is and flags.exists() and "flags" in (text := flags.read_text()):
        known = bool({"avx512_bf16", "amx_bf16"} & {*text.split()})
        assert device.bfloat16_is_faster("cpu") == known
    assert not device.bfloat16_is_faster("meta")


@pytest.mark.parametrize("has_vectors", [True, False])
@pytest.mark.parametrize("has_tiles", [True, False])
def test_vectors_or_tiles_multiply_bfloat16(monkeypatch, has_vectors, has_tiles):
    cpu = torch.cpu
    monkeypatch.setattr(cpu, "_is_avx512_bf16_supported", lambda: has_vectors)
    monkeypatch.setattr(cpu, "_is_amx_tile_supported", lambda: has_tiles)
    assert device.bfloat16_is_faster("cpu") == (has_vectors or has_tiles)


def test_tokens_of_either_integer_type_are_trained_on_and_evaluated():
    model = tiny_gpt()
    tokens = random_tokens(20)
    assert evaluate(model, tokens.int()) == evaluate(model, tokens)
    logits = random(2, 4, 13)
    loss = next_token_loss(logits, random_tokens(2, 4))
    assert torch.equal(next_token_loss(logits, random_tokens(2, 4).int()), loss)


def test_what_makes_no_sense_is_refused():
    model = tiny_gpt()
    adam = AdamW(model.parameters())
    tokens = random_tokens(2, T)
    for call, words in (
        (lambda: train(model, adam, [], clip=0), "clip is 0"),
        (lambda: bits_per_character(1.0, 0, 5), "n_tokens is 0"),
        (lambda: evaluate(model, tokens), r"tokens is .* integers \(t\)"),
    ):
        with pytest.raises(ValueError, match=words):
            call()


def test_bits_a_character_are_those_of_all_tokens_shared_out():
    assert bits_per_character(math.log(2), 5, 5) == pytest.approx(1)
    assert bits_per_character(math.log(256), 10, 20) == pytest.approx(4)
