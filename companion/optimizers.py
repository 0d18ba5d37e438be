"""Optimizers: AdamW, Muon, schedules of the learning rate, clipping. Chapter 05."""

import math
from collections.abc import Iterable

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from .blocks import Block
from .inputs import check_between, check_tensor, check_whole
from .processes import parted, whole


def check_schedule(step: int, warmup: int, total: int, floor: float) -> None:
    """Raise ValueError for what can't be numbers of steps, or a share of the rate."""
    check_whole(0, step=step, warmup=warmup, total=total)
    check_between(0, 1, floor=floor)


def warmup_cosine(step: int, *, warmup: int, total: int, floor: float = 0.0) -> float:
    """A factor for the learning rate: up to 1 in `warmup` steps, then down to `floor`.

    The way down is half a cosine that ends at step `total`. Raises ValueError for what
    can't be a number of steps or a share. Loshchilov and Hutter 2016.
    """
    check_schedule(step, warmup, total, floor)
    if step < warmup:
        return (step + 1) / (warmup + 1)
    progress = min(1.0, (step - warmup) / max(1, total - warmup))
    return floor + (1 - floor) * 0.5 * (1 + math.cos(math.pi * progress))


def warmup_linear(step: int, *, warmup: int, total: int, floor: float = 0.0) -> float:
    """`warmup_cosine` with a straight way down. Defazio et al. 2023 find it better."""
    check_schedule(step, warmup, total, floor)
    if step < warmup:
        return (step + 1) / (warmup + 1)
    return max(floor, 1 - (1 - floor) * (step - warmup) / max(1, total - warmup))


def noam(step: int, *, d_model: int, warmup: int = 4000) -> float:
    """The learning rate of the original paper at `step`, counted from 1.

    d_model^-0.5 · min(step^-0.5, step · warmup^-1.5). Vaswani et al. 2017, eq. 3.
    Raises ValueError for a step or a size that is not positive.
    """
    check_whole(step=step, d_model=d_model, warmup=warmup)
    return d_model**-0.5 * min(step**-0.5, step * warmup**-1.5)


def check_groups(optimizer: Optimizer) -> None:
    """Raise ValueError for a setting that is unknown or makes no sense."""
    known = {"params", "param_names", "initial_lr", *optimizer.defaults}
    for group in optimizer.param_groups:
        if unknown := group.keys() - known:
            raise ValueError(
                f"{min(unknown)} is unknown; {type(optimizer).__name__} has"
                f" {', '.join(optimizer.defaults)}"
            )
        for name in ("lr", "eps", "weight_decay"):
            check_between(0, **{name: group[name]})
        if not isinstance(group["betas"], tuple | list) or len(group["betas"]) != 2:
            raise ValueError(f"betas are {group['betas']!r}; they must be two numbers")
        for beta in (*group["betas"], group.get("momentum", 0.0)):
            if not isinstance(beta, int | float) or not 0 <= beta < 1:
                raise ValueError(
                    f"betas and momentum must be from 0 to below 1, not {beta!r}"
                )


class AdamW(Optimizer):
    """Adam with decoupled weight decay. Loshchilov and Hutter 2017, algorithm 2.

    Raises ValueError for a setting that is unknown or makes no sense.
    """

    def __init__(
        self,
        params,
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.01,
    ):
        adam = {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay}
        super().__init__(params, adam)
        check_groups(self)

    @torch.no_grad()
    def step(self) -> None:
        for group in self.param_groups:
            self.update([p for p in group["params"] if p.grad is not None], group)

    def update(self, parameters: list[Tensor], group: dict) -> None:
        beta1, beta2 = group["betas"]
        for parameter in parameters:
            state = self.state[parameter]
            if not state:
                state["step"] = 0
                state["mean"] = torch.zeros_like(parameter)
                state["square"] = torch.zeros_like(parameter)
            state["step"] += 1
            mean, square = state["mean"], state["square"]
            mean.lerp_(parameter.grad, 1 - beta1)
            square.mul_(beta2).addcmul_(parameter.grad, parameter.grad, value=1 - beta2)
            root = (
                square.sqrt()
                .div_(math.sqrt(1 - beta2 ** state["step"]))
                .add_(group["eps"])
            )
            parameter.mul_(1 - group["lr"] * group["weight_decay"])
            parameter.addcdiv_(
                mean, root, value=-group["lr"] / (1 - beta1 ** state["step"])
            )


def orthogonalize(matrices: Tensor, n_steps: int = 5) -> Tensor:
    """(n rows columns) with all singular values pushed towards 1, to within about 0.3.

    Newton-Schulz steps of a quintic whose coefficients trade accuracy for speed.
    Raises ValueError for what is no stack of matrices. Jordan et al. 2024 (Muon).
    """
    check_tensor("floats", "... r c", matrices=matrices)
    check_whole(0, n_steps=n_steps)
    a, b, c = 3.4445, -4.7750, 2.0315
    wide = matrices.shape[-2] <= matrices.shape[-1]
    x = matrices if wide else matrices.mT
    x = x / (x.norm(dim=(-2, -1), keepdim=True) + 1e-7)
    for _ in range(n_steps):
        gram = x @ x.mT
        x = torch.baddbmm(
            x, torch.baddbmm(gram, gram, gram, beta=b, alpha=c), x, beta=a
        )
    return x if wide else x.mT


class Muon(AdamW):
    """Momentum whose every step is orthogonalised: for the matrices between the layers.

    Embeddings, norms and biases belong in groups with `"muon": False`, which AdamW
    updates. Raises ValueError for a parameter that is not a matrix. Jordan et al. 2024.
    """

    def __init__(
        self,
        params,
        lr: float = 0.02,
        momentum: float = 0.95,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.01,
    ):
        adam = {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay}
        Optimizer.__init__(self, params, adam | {"momentum": momentum, "muon": True})
        check_groups(self)
        for group in self.param_groups:
            for parameter in group["params"]:
                if group["muon"] and parameter.dim() != 2:
                    raise ValueError(
                        f"Muon takes matrices, not {tuple(parameter.shape)}: put the"
                        ' others in a group with "muon": False'
                    )

    def update(self, parameters: list[Tensor], group: dict) -> None:
        if not group["muon"]:
            return super().update(parameters, group)
        same_shape: dict[torch.Size, list[Tensor]] = {}
        for parameter in parameters:
            same_shape.setdefault(parameter.shape, []).append(parameter)
        for (rows, columns), stack in same_shape.items():
            for parameter in stack:
                state = self.state[parameter]
                momentum = state.setdefault("momentum", torch.zeros_like(parameter))
                momentum.lerp_(parameter.grad, 1 - group["momentum"])
            ahead = [
                whole(p.grad.lerp(self.state[p]["momentum"], group["momentum"]))
                for p in stack
            ]
            length = group["lr"] * max(1, rows / columns) ** 0.5
            updates = orthogonalize(torch.stack(ahead))
            for parameter, update in zip(stack, updates, strict=True):
                parameter.mul_(1 - group["lr"] * group["weight_decay"])
                parameter.sub_(parted(update, parameter), alpha=length)


def muon(
    model: nn.Module,
    lr: float = 0.02,
    adam_lr: float = 1e-2,
    momentum: float = 0.95,
    weight_decay: float = 0.0,
) -> Muon:
    """Muon for the matrices in the model's blocks, AdamW for everything else.

    Raises ValueError for a model without blocks.
    """
    if not isinstance(model, nn.Module):
        raise ValueError(f"model is {model!r}; it must be a model with blocks")
    blocks = [module for module in model.modules() if isinstance(module, Block)]
    matrices = [p for block in blocks for p in block.parameters() if p.dim() == 2]
    if not matrices:
        raise ValueError(f"{type(model).__name__} has no blocks; use AdamW for it")
    known = {id(p) for p in matrices}
    others = [p for p in model.parameters() if id(p) not in known]
    groups = [{"params": matrices}, {"params": others, "muon": False, "lr": adam_lr}]
    return Muon(groups, lr, momentum, betas=(0.9, 0.95), weight_decay=weight_decay)


def clip_gradients(parameters: Iterable[Tensor], limit: float) -> Tensor:
    """Scale all gradients so that their common norm is at most `limit`; return it.

    The norm, as it was before, is a tensor (): nothing here waits for the device.
    Raises ValueError for a limit that is not positive. Pascanu et al. 2013, alg. 1.
    """
    check_between(0, above=True, limit=limit)
    if isinstance(parameters, Tensor):
        raise ValueError("parameters are one tensor; they must be several, in a list")
    gradients = [p.grad for p in parameters if p.grad is not None]
    if not gradients:
        return torch.zeros(())
    norm = torch.stack([gradient.norm() for gradient in gradients]).norm()
    factor = (limit / (norm + 1e-6)).clamp(max=1)
    for gradient in gradients:
        gradient.mul_(factor)
    return norm
