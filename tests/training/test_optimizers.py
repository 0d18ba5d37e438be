"""AdamW and Muon against torch.optim and loops written out, and the schedules."""

import math
from contextlib import nullcontext
from functools import partial

import pytest
import torch
import torch.nn.functional as F
from common import EXACT, random, rounding
from tiny import T, random_tokens, tiny_gpt
from torch import nn
from torch.testing import assert_close

from companion import (
    AdamW,
    Muon,
    muon,
    noam,
    orthogonalize,
    train,
    warmup_cosine,
    warmup_linear,
)


def test_adamw_is_pytorchs_over_200_steps_with_two_groups_and_a_schedule():
    def run(optimizer_class):
        torch.manual_seed(0)
        net = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 3)).double()
        unused = nn.Parameter(torch.ones(3))
        groups = [
            {"params": [net[0].weight, net[2].weight], "weight_decay": 0.3},
            {"params": [net[0].bias, net[2].bias, unused], "lr": 0.004},
        ]
        optimizer = optimizer_class(
            groups, lr=0.01, betas=(0.8, 0.95), eps=1e-2, weight_decay=0.0
        )

        for step in range(200):
            x = random(16, 4, seed=step, dtype=torch.float64)
            optimizer.zero_grad()
            F.mse_loss(net(x), x[:, :3].sin()).backward()
            optimizer.step()
            if step == 100:
                optimizer.param_groups[0]["lr"] = 0.002
        return [x.detach().clone() for x in net.parameters()] + [unused]

    assert_close(run(AdamW), run(torch.optim.AdamW), **EXACT)


def test_adamw_has_pytorchs_defaults():
    settings = AdamW([nn.Parameter(torch.ones(2))]).param_groups[0]
    expected = torch.optim.AdamW([nn.Parameter(torch.ones(2))]).param_groups[0]
    for name in ("lr", "betas", "eps", "weight_decay"):
        assert settings[name] == expected[name]


def test_a_saved_adamw_goes_on_where_it_stopped():
    def run(n_steps, saved=None):
        model = tiny_gpt()
        optimizer = AdamW(model.parameters(), 0.01)
        if saved:
            model.load_state_dict(saved[0])
            optimizer.load_state_dict(saved[1])
        batch = (random_tokens(2, T), random_tokens(2, T))
        train(model, optimizer, [batch] * n_steps)
        return model.state_dict(), optimizer.state_dict()

    assert_close(run(3, run(4))[0], run(7)[0], atol=0, rtol=0)


@pytest.mark.parametrize("scale", [1e-3, 1e3])
@pytest.mark.parametrize(
    "shape", [(6, 16), (16, 6), (1, 8, 8), (3, 4, 10), (2, 3, 10, 4)]
)
def test_orthogonalize_keeps_directions_and_makes_lengths_about_1(shape, scale):
    matrices = scale * random(*shape, dtype=torch.float64)
    out = orthogonalize(matrices)
    assert out.shape == matrices.shape
    left, _, right = torch.linalg.svd(matrices, full_matrices=False)
    turned = left.mT @ out @ right.mT  # diagonal, if the singular vectors are kept
    lengths = turned.diagonal(dim1=-2, dim2=-1)
    assert_close(turned, torch.diag_embed(lengths), **EXACT)
    assert lengths.min() > 0.5 and lengths.max() < 1.5
    values = torch.linalg.svdvals(out)
    assert values.min() > 0.5 and values.max() < 1.5


def test_orthogonalize_treats_every_matrix_of_a_batch_by_itself():
    sizes = torch.tensor([1e-2, 1.0, 1e2])[:, None, None]
    matrices = random(3, 4, 10, dtype=torch.float64) * sizes
    alone = torch.stack([orthogonalize(matrix) for matrix in matrices])
    assert_close(orthogonalize(matrices), alone, **EXACT)


def test_orthogonalize_leaves_zeros_and_its_input_alone():
    matrices = random(2, 4, 4)
    copy = matrices.clone()
    orthogonalize(matrices)
    assert torch.equal(matrices, copy)
    assert (orthogonalize(torch.zeros(1, 3, 5)) == 0).all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_orthogonalize_makes_no_direction_of_rounding(dtype):
    """Nor under autocast. Products of powers of 2 have rank one in 16 bits, too."""
    rows = torch.tensor([[1.0, -2, 0.5, 4], [8, 1, 0.25, -1]])
    columns = torch.tensor([[2.0, 1, -0.5], [0.25, -4, 1]])
    matrices = (rows[:, :, None] * columns[:, None] / 3).to(dtype)
    out = orthogonalize(matrices)
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(orthogonalize(matrices), out)
    assert out.dtype == dtype
    values = torch.linalg.svdvals(out.float())
    assert values[:, 0].min() > 0.5 and values[:, 1:].max() < 1e-3


def test_a_step_of_muon_is_the_same_under_autocast():
    def stepped(context):
        p = nn.Parameter(random(6, 8))
        p.grad = torch.outer(random(6, seed=1), random(8, seed=2))
        with context:
            Muon([p]).step()
        return p.detach()

    autocast = torch.autocast("cpu", torch.bfloat16)
    assert torch.equal(stepped(autocast), stepped(nullcontext()))


def test_orthogonalize_of_float16_has_no_largest_length():
    matrices = (1000 * random(2, 80, 90)).half()  # of length 85,000
    values = torch.linalg.svdvals(orthogonalize(matrices).float())
    assert values.min() > 0.5 and values.max() < 1.5


def newton_schulz(g, n_steps=5):
    """X <- a X + b (X Xᵀ) X + c (X Xᵀ)² X, for one wide or tall matrix."""
    x = g / (g.norm() + 1e-7)
    for _ in range(n_steps):
        x = 3.4445 * x - 4.7750 * (x @ x.T) @ x + 2.0315 * (x @ x.T) @ (x @ x.T) @ x
    return x


def test_muon_is_the_loop_over_single_matrices_and_adamw_is_elsewhere():
    shapes = [(4, 6), (6, 4), (4, 6), (5, 5), (12, 3)]
    draw = partial(random, dtype=torch.float64)
    matrices = [nn.Parameter(draw(*s, seed=i)) for i, s in enumerate(shapes)]
    expected = [p.detach().clone() for p in matrices]
    frozen = nn.Parameter(random(4, 6))
    vector = nn.Parameter(draw(7))
    other = nn.Parameter(vector.detach().clone())

    optimizer = Muon(
        [
            {"params": [*matrices, frozen]},
            {"params": [vector], "muon": False, "lr": 0.3},
        ],
        0.05,
        momentum=0.9,
        betas=(0.8, 0.9),
        eps=1e-3,
        weight_decay=0.1,
    )
    reference = torch.optim.AdamW(
        [other], 0.3, betas=(0.8, 0.9), eps=1e-3, weight_decay=0.1
    )

    # The same steps, matrix by matrix.
    means = [torch.zeros(s).double() for s in shapes]
    for step in range(5):
        for i, (p, x) in enumerate(zip(matrices, expected, strict=True)):
            gradient = draw(*p.shape, seed=100 * step + i)
            p.grad = gradient
            means[i] = 0.9 * means[i] + 0.1 * gradient
            ahead = 0.9 * means[i] + 0.1 * gradient  # Nesterov's
            rows, columns = gradient.shape
            if rows > columns:
                update = math.sqrt(rows / columns) * newton_schulz(ahead.T).T
            else:
                update = newton_schulz(ahead)
            x -= 0.05 * (0.1 * x + update)
        vector.grad = draw(7, seed=step)
        other.grad = vector.grad.clone()
        optimizer.step()
        reference.step()

    for p, x in zip(matrices, expected, strict=True):
        assert_close(p.detach(), x, **EXACT)
    assert_close(vector, other, **EXACT)
    assert torch.equal(frozen, random(4, 6)), "no gradient, no step"


def test_the_default_muon_has_every_parameter_once_and_only_block_matrices_by_muon():
    model = tiny_gpt()
    optimizer = muon(model, adam_lr=0.003)
    taken = [p for group in optimizer.param_groups for p in group["params"]]
    assert sorted(map(id, taken)) == sorted(map(id, model.parameters()))

    names = {id(p): name for name, p in model.named_parameters()}
    for group in optimizer.param_groups:
        assert group["lr"] == (0.02 if group["muon"] else 0.003)
        assert (group["betas"], group["momentum"]) == ((0.9, 0.95), 0.95)
        for parameter in group["params"]:
            name = names[id(parameter)]
            inside = name.startswith("blocks.") and "norm" not in name
            assert group["muon"] == (inside and name.endswith(".weight"))


def test_muon_decays_no_weight_by_default_whichever_way_it_is_made():
    for optimizer in (muon(tiny_gpt()), Muon([nn.Parameter(torch.eye(3))])):
        assert all(group["weight_decay"] == 0 for group in optimizer.param_groups)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_the_running_means_of_16_bits_are_those_of_the_same_gradients(dtype):
    """With β₂ = 0.999 a mean in bfloat16 would stand still."""
    weights = nn.Parameter(random(4, 6).to(dtype))
    matrix = nn.Parameter(random(4, 6).to(dtype))
    adam = AdamW([weights], lr=1e-5, weight_decay=0)
    by_muon = Muon([matrix], lr=1e-5)

    # Their means, beside the same means in 64 bits.
    mean = square = momentum = torch.zeros(4, 6, dtype=torch.float64)
    for step in range(400):
        gradient = (1 + random(4, 6, seed=step)).to(dtype)
        weights.grad = matrix.grad = gradient
        adam.step()
        by_muon.step()
        mean = 0.9 * mean + 0.1 * gradient.double()
        square = 0.999 * square + 0.001 * gradient.double() ** 2
        momentum = 0.95 * momentum + 0.05 * gradient.double()

    assert weights.dtype == matrix.dtype == dtype
    state = adam.state[weights]
    for name, right in (("mean", mean), ("square", square)):
        # Each step rounds once, in float32.
        assert_close(state[name], right.float(), **rounding(400, right.float()))
    muons_momentum = by_muon.state[matrix]["momentum"]
    close = rounding(400, momentum.float())
    assert_close(muons_momentum, momentum.float(), **close)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("optimizer", [AdamW, Muon])
def test_a_decay_that_16_bits_would_round_away_is_refused(optimizer, dtype):
    def step(lr, weight_decay):
        weights = nn.Parameter(torch.ones(2, 3, dtype=dtype))
        one = optimizer([weights], lr=lr, weight_decay=weight_decay)
        weights.grad = torch.zeros_like(weights)
        one.step()
        return weights

    with pytest.raises(ValueError, match=f"is 1e-05, .* is 1 in {dtype}: nothing"):
        step(1e-3, 0.01)
    assert (step(1e-3, 0.0) == 1).all()
    assert (step(0.0, 0.01) == 1).all()
    assert (step(0.5, 0.5) == 0.75).all()


@pytest.mark.parametrize("floor", [0.0, 0.1])
@pytest.mark.parametrize("warmup", [0, 10])
def test_warmup_rises_evenly_to_1_and_the_cosine_falls_to_the_floor(warmup, floor):
    factors = [
        warmup_cosine(step, warmup=warmup, total=warmup + 40, floor=floor)
        for step in range(warmup + 60)
    ]
    up, down = factors[: warmup + 1], factors[warmup : warmup + 41]

    assert up == pytest.approx([(i + 1) / len(up) for i in range(len(up))])
    assert down[0] == 1
    assert all(a > b for a, b in zip(down, down[1:], strict=False))
    assert down[20] == pytest.approx((1 + floor) / 2)
    assert down[10] - floor == pytest.approx((1 - floor) * (2 + 2**0.5) / 4)
    assert factors[warmup + 40 :] == pytest.approx([floor] * 20)


@pytest.mark.parametrize("floor", [0.0, 0.1])
@pytest.mark.parametrize("warmup", [0, 10])
def test_the_linear_schedule_rises_as_the_other_and_falls_in_a_line(warmup, floor):
    factors = [
        warmup_linear(step, warmup=warmup, total=warmup + 40, floor=floor)
        for step in range(warmup + 60)
    ]
    rising = [
        warmup_cosine(step, warmup=warmup, total=warmup + 40, floor=floor)
        for step in range(warmup)
    ]
    assert factors[:warmup] == rising
    line = [1 - (1 - floor) * i / 40 for i in range(41)]
    assert factors[warmup : warmup + 41] == pytest.approx(line)
    assert factors[warmup + 40 :] == pytest.approx([floor] * 20)


@pytest.mark.parametrize("schedule", [warmup_cosine, warmup_linear])
def test_a_schedule_of_warmup_alone_divides_by_no_zero(schedule):
    assert schedule(5, warmup=5, total=5, floor=0.2) in (1.0, 0.2)
    assert schedule(9, warmup=5, total=9) == 0  # the floor of those who name none


def test_noam_is_equation_3_with_its_peak_at_the_end_of_warmup():
    d_model = 64
    warmup = 10
    rates = [noam(s, d_model=d_model, warmup=warmup) for s in range(1, 2 * warmup)]
    for step in (1, 2, warmup - 1, warmup, warmup + 1, 2 * warmup - 1):
        factor = 1 / math.sqrt(step)
        if step < warmup:
            factor = step / math.sqrt(warmup**3)
        assert rates[step - 1] == pytest.approx(factor / math.sqrt(d_model))
    assert rates.index(max(rates)) + 1 == warmup
    assert noam(4000, d_model=8) > max(noam(s, d_model=8) for s in (3999, 4001))


def test_what_makes_no_sense_is_refused():
    matrix = nn.Parameter(torch.ones(2, 2))
    vector = nn.Parameter(torch.ones(3))
    for call, words in (
        (lambda: Muon([matrix, vector]), r"matrices, not \(3,\)"),
        (lambda: muon(nn.Linear(2, 2)), "Linear has no blocks"),
        (lambda: orthogonalize(torch.ones(3)), r"matrices is .* \(3,\)"),
        (lambda: noam(0, d_model=8), "step is 0"),
        (lambda: warmup_cosine(1, warmup=0, total=3, floor=1.1), "floor is 1.1"),
        (lambda: warmup_linear(1, warmup=-1, total=3), "warmup is -1"),
        (lambda: warmup_cosine(1, warmup=1, total=1.5), "total is 1.5"),
    ):
        with pytest.raises(ValueError, match=words):
            call()
    with pytest.raises(TypeError, match="learning_rate"):
        Muon([matrix], learning_rate=0.1)
    Muon([{"params": [vector], "muon": False}])


def test_muon_takes_no_vector_later_either_and_goes_on_without_it():
    matrix = nn.Parameter(torch.eye(3))
    optimizer = Muon([matrix])
    with pytest.raises(ValueError, match=r"matrices, not \(3,\)"):
        optimizer.add_param_group({"params": [nn.Parameter(torch.ones(3))]})
    optimizer.add_param_group({"params": [nn.Parameter(torch.ones(2, 2))]})
    assert [len(group["params"]) for group in optimizer.param_groups] == [1, 1]
    assert all(group["muon"] for group in optimizer.param_groups)
