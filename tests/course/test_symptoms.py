"""Four rows of docs/symptoms.md: the cause brings the symptom, and its test decides."""

import copy

import pytest
import torch
import torch.nn.functional as F
from common import ROOT, random
from torch import Tensor, nn

import companion


@pytest.mark.parametrize("n, at", [(1000, 999), (1000, 700), (1600, 1100)])
def test_nan_in_a_hidden_value_reaches_back_to_a_multiple_of_512(n, at):
    """In the fused attention; in the explicit one, it reaches every row."""
    queries, keys, values = (random(1, 2, n, 16, seed=i) for i in range(3))

    def bad_rows(values: Tensor) -> list[int]:
        y = F.scaled_dot_product_attention(queries, keys, values, is_causal=True)
        return y.isnan().any(-1)[0, 0].nonzero()[:, 0].tolist()

    assert bad_rows(values) == []
    values[:, :, at] = torch.nan
    assert bad_rows(values) == [*range(at // 512 * 512, n)]
    mask = companion.causal_mask(n)
    assert companion.attention(queries, keys, values, mask).isnan().all()


def test_the_mean_of_a_row_without_targets_is_nan():
    logits = random(2, 5, 7)
    targets = torch.full((2, 5), -100)
    targets[0] = 1
    means = [F.cross_entropy(*row) for row in zip(logits, targets, strict=True)]
    assert [x.isnan().item() for x in means] == [False, True]
    assert (targets != -100).sum(1).tolist() == [5, 0]
    with pytest.raises(ValueError, match="none of the 5 targets counts"):
        companion.next_token_loss(logits[1:], targets[1:])


@pytest.mark.parametrize("is_copied", [False, True])
def test_dpo_against_itself_stays_at_log_2_though_the_weights_move(is_copied):
    model = nn.Linear(4, 6)
    reference = copy.deepcopy(model) if is_copied else model
    features = random(8, 4)
    chosen = torch.arange(8) % 6
    rejected = (chosen + 1) % 6

    def margin(model: nn.Module) -> Tensor:
        log_p = model(features).log_softmax(-1)
        return log_p[range(8), chosen] - log_p[range(8), rejected]

    before = margin(reference).detach()
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    losses = []
    for _ in range(5):
        with torch.no_grad():
            of_reference = margin(reference)
        loss = -F.logsigmoid(0.5 * (margin(model) - of_reference)).mean()
        losses.append(round(loss.item(), 3))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert losses[0] == 0.693 and (losses[-1] < 0.693) == is_copied
    assert not torch.equal(margin(model), before)
    assert torch.equal(margin(reference), before) == is_copied


@pytest.mark.parametrize("is_divided", [False, True])
def test_a_router_whose_only_weight_is_divided_by_itself_gets_no_gradient(is_divided):
    x = random(64, 8)
    router = random(8, 4, seed=1).requires_grad_()
    experts = random(4, 8, 8, seed=2)
    weight, chosen = (x @ router).softmax(-1).max(-1, keepdim=True)
    if is_divided:
        weight = weight / weight.sum(-1, keepdim=True)
    y = weight * torch.einsum("bc,bcd->bd", x, experts[chosen[:, 0]])
    y.square().mean().backward()
    # A product of float32 is rounded by 1e-7, and what is divided is rounded twice.
    assert (router.grad.abs().max() < 1e-5) == is_divided


def test_each_is_a_row_of_the_table():
    page = (ROOT / "docs" / "symptoms.md").read_text("utf-8")
    for symptom in (
        "NaN from a multiple of 512 on",
        "NaN from single batches, all weights finite before",
        "DPO stays at 0.693",
        "a router is balanced and learns nothing",
    ):
        assert f"\n| {symptom} |" in page
