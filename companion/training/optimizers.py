"""Optimizers: AdamW, Muon, and schedules of the learning rate. Chapter 05."""

import math

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from ..inputs import check_between, check_tensor, check_whole
from .processes import full_tensor, shard_like, widened


def warmup_linear(step: int, *, warmup: int, total: int, floor: float = 0.0) -> float:
    """A factor for the learning rate: up to 1 in `warmup` steps, then down to `floor`.

    The way down is a straight line that ends at step `total`. Defazio et al. 2023.
    """
    check_whole(0, step=step, warmup=warmup, total=total)
    check_between(0, 1, floor=floor)
    if step < warmup:
        return (step + 1) / (warmup + 1)
    return max(floor, 1 - (1 - floor) * (step - warmup) / max(1, total - warmup))


def warmup_cosine(step: int, *, warmup: int, total: int, floor: float = 0.0) -> float:
    """`warmup_linear`, but down along half a cosine. Loshchilov and Hutter 2016."""
    check_between(0, 1, floor=floor)
    factor = warmup_linear(step, warmup=warmup, total=total)
    if step < warmup:
        return factor
    return floor + (1 - floor) * (1 - math.cos(math.pi * factor)) / 2


def noam(step: int, *, d_model: int, warmup: int = 4000) -> float:
    """The learning rate of the original paper at `step`, counted from 1.

    d_model^-0.5 · min(step^-0.5, step · warmup^-1.5). Vaswani et al. 2017, eq. 3.
    """
    check_whole(step=step, d_model=d_model, warmup=warmup)
    return d_model**-0.5 * min(step**-0.5, step * warmup**-1.5)


class AdamW(Optimizer):
    """Adam with decoupled weight decay. Loshchilov and Hutter 2017, algorithm 2.

    Of parameters with 16 bits the running means are kept in float32: a step of theirs
    is a thousandth, which 16 bits would round away.
    """

    def __init__(
        self, params, lr=1e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.01
    ):
        own = {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay}
        super().__init__(params, own)

    @torch.no_grad()
    def step(self) -> None:
        for group in self.param_groups:
            self.update([p for p in group["params"] if p.grad is not None], group)

    def update(self, parameters: list[Tensor], group: dict) -> None:
        beta1, beta2 = group["betas"]
        for p in parameters:
            state = self.state[p]
            if not state:
                zeros = widened(torch.zeros_like(p))
                state |= {"step": 0, "mean": zeros, "square": zeros.clone()}
            state["step"] += 1
            gradient = widened(p.grad)
            mean = state["mean"].lerp_(gradient, 1 - beta1)
            square = state["square"].mul_(beta2)
            square.addcmul_(gradient, gradient, value=1 - beta2)
            correction = math.sqrt(1 - beta2 ** state["step"])
            root = square.sqrt().div_(correction).add_(group["eps"])
            rate = group["lr"] / (1 - beta1 ** state["step"])
            p.mul_(1 - group["lr"] * group["weight_decay"])
            p.addcdiv_(mean, root, value=-rate)


def orthogonalize(matrices: Tensor, n_steps: int = 5) -> Tensor:
    """(... rows columns) with all singular values pushed to 1, within about 0.3.

    Newton-Schulz steps of a quintic whose coefficients trade accuracy for speed.
    Jordan et al. 2024 (Muon).
    """
    check_tensor("floats", "... r c", matrices=matrices)
    a, b, c = 3.4445, -4.7750, 2.0315
    is_tall = matrices.shape[-2] > matrices.shape[-1]
    x = matrices.reshape(-1, *matrices.shape[-2:])
    x = x.mT if is_tall else x
    lengths = widened(x).norm(dim=(-2, -1), keepdim=True)
    x = (x / (lengths + 1e-7)).to(x.dtype)
    for _ in range(n_steps):
        gram = x @ x.mT
        polynomial = torch.baddbmm(gram, gram, gram, beta=b, alpha=c)
        x = torch.baddbmm(x, polynomial, x, beta=a)
    return (x.mT if is_tall else x).reshape(matrices.shape)


class Muon(AdamW):
    """Momentum whose every step is orthogonalised: for the matrices between the layers.

    Embeddings, norms and biases belong in groups with `"muon": False`, which AdamW
    updates. Raises ValueError for a parameter that is not a matrix. Jordan et al. 2024.
    """

    def __init__(self, params, lr=0.02, momentum=0.95, **adam):
        super().__init__(params, lr, **adam)
        self.defaults |= {"momentum": momentum, "muon": True}
        for group in self.param_groups:
            group |= self.defaults | group
            bad = [tuple(p.shape) for p in group["params"] if p.dim() != 2]
            if group["muon"] and bad:
                others = 'put the others in a group with "muon": False'
                raise ValueError(f"Muon takes matrices, not {bad[0]}: {others}")

    def update(self, parameters: list[Tensor], group: dict) -> None:
        if not group["muon"]:
            return super().update(parameters, group)
        for shape in dict.fromkeys(p.shape for p in parameters):
            stack = [p for p in parameters if p.shape == shape]
            ahead = []
            for p in stack:
                gradient = widened(p.grad)
                if "momentum" not in self.state[p]:
                    self.state[p]["momentum"] = torch.zeros_like(gradient)
                momentum = self.state[p]["momentum"]
                momentum.lerp_(gradient, 1 - group["momentum"])
                newest_again = gradient.lerp(momentum, group["momentum"])
                ahead.append(full_tensor(newest_again))
            length = group["lr"] * max(1, shape[0] / shape[1]) ** 0.5
            updates = orthogonalize(torch.stack(ahead))
            for p, update in zip(stack, updates, strict=True):
                p.mul_(1 - group["lr"] * group["weight_decay"])
                p.sub_(shard_like(update, p), alpha=length)


def muon(
    model: nn.Module, lr=0.02, adam_lr=1e-2, momentum=0.95, weight_decay=0.0
) -> Muon:
    """Muon for the matrices in the model's blocks, AdamW for everything else.

    Raises ValueError for a model without `blocks`.
    """
    matrices, others = [], []
    for name, parameter in model.named_parameters():
        is_inside = "blocks." in name and parameter.dim() == 2
        (matrices if is_inside else others).append(parameter)
    if not matrices:
        raise ValueError(f"{type(model).__name__} has no blocks; use AdamW for it")
    groups = [{"params": matrices}, {"params": others, "muon": False, "lr": adam_lr}]
    return Muon(groups, lr, momentum, betas=(0.9, 0.95), weight_decay=weight_decay)
