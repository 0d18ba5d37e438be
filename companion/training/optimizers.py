"""Optimizers: AdamW, Muon, and schedules of the learning rate. Chapter 05."""

import math
from collections.abc import Iterable

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from ..device import at_least_float32, in_full_precision
from ..inputs import check_between, check_bool, check_tensor, check_whole
from .processes import full_tensor, shard_like

# Of a x + b x³ + c x⁵, Muon's polynomial: quick rather than exact. Jordan et al. 2024.
QUINTIC = (3.4445, -4.7750, 2.0315)
# Below this, `eps` may be 0 beside a root in float32, and 0 / 0 is no number.
LEAST_EPS = torch.finfo(torch.float32).tiny


def optimized_parameters(optimizer: Optimizer) -> list[Tensor]:
    """Returns the optimizer's parameters, in its order."""
    return [p for group in optimizer.param_groups for p in group["params"]]


def scale_rates(optimizer: Optimizer, rates: list[float], factor: float) -> None:
    """Gives each of the optimizer's groups its own of `rates`, times a factor."""
    for group, rate in zip(optimizer.param_groups, rates, strict=True):
        group["lr"] = rate * factor


def warmup_linear(step: int, *, warmup: int, total: int, floor: float = 0.0) -> float:
    """Computes a factor for the learning rate: up to 1, then down to `floor`.

    It rises for `warmup` steps, and falls in a straight line that ends at step `total`.
    Steps are counted from 0. Raises ValueError for a rise that is longer than all.
    Defazio et al. 2023.
    """
    check_whole(0, step=step, warmup=warmup, total=total)
    check_between(0, 1, floor=floor)
    if warmup > total:
        raise ValueError(
            f"warmup ({warmup}) is longer than total ({total}): the rate would drop to"
            " its floor before it has risen"
        )
    if step < warmup:
        return (step + 1) / (warmup + 1)
    return max(floor, 1 - (1 - floor) * (step - warmup) / max(1, total - warmup))


def warmup_cosine(step: int, *, warmup: int, total: int, floor: float = 0.0) -> float:
    """Computes the factor of `warmup_linear`, but down along half a cosine.

    Loshchilov and Hutter 2016, eq. 5.
    """
    check_between(0, 1, floor=floor)
    factor = warmup_linear(step, warmup=warmup, total=total)
    if step < warmup:
        return factor
    # The factor falls from 1 to 0, where the paper's progress rises from 0 to 1.
    return floor + (1 - floor) * (1 - math.cos(math.pi * factor)) / 2


def noam(step: int, *, d_model: int, warmup: int = 4000) -> float:
    """Computes the learning rate of the original paper at `step`, counted from 1.

    d_model^-0.5 · min(step^-0.5, step · warmup^-1.5). Vaswani et al. 2017, eq. 3.
    """
    check_whole(step=step, d_model=d_model, warmup=warmup)
    return d_model**-0.5 * min(step**-0.5, step * warmup**-1.5)


class Descent(Optimizer):
    """What AdamW and Muon share: settings that are checked, and a step of all groups.

    Each has an `update` of its own.
    """

    def add_param_group(self, param_group: dict) -> None:
        """Adds a group of parameters, now or later.

        Raises ValueError for settings out of their range, and for a decay so small that
        parameters of this dtype round it away, and then adds nothing.
        """
        settings = self.defaults | param_group
        check_between(0, finite=True, lr=settings["lr"])
        check_between(0, finite=True, weight_decay=settings["weight_decay"])
        check_between(LEAST_EPS, finite=True, eps=settings["eps"])
        for beta in settings["betas"]:
            if not 0 <= beta < 1:
                raise ValueError(
                    f"betas are {settings['betas']}; each must be 0 or more, below 1"
                )
        super().add_param_group(param_group)

        decay = settings["lr"] * settings["weight_decay"]
        for p in self.param_groups[-1]["params"]:
            has_16_bits = p.dtype.itemsize == 2
            if has_16_bits and decay and torch.tensor(1 - decay, dtype=p.dtype) == 1:
                self.param_groups.pop()
                raise ValueError(
                    f"lr · weight_decay is {decay:g}, and 1 less that is 1 in"
                    f" {p.dtype}: nothing would decay. Keep the parameters in float32"
                    " (autocast computes in 16 bits), or set weight_decay=0"
                )

    # PyTorch's takes a closure, too, for methods that compute a loss several times.
    @torch.no_grad()
    def step(self) -> None:  # type: ignore[override]
        """Moves every parameter that has a gradient."""
        for group in self.param_groups:
            parameters = [p for p in group["params"] if p.grad is not None]
            self.update(parameters, group)

    def update(self, parameters: list[Tensor], group: dict) -> None:
        """Moves the parameters by their gradients and the settings of their group."""
        raise NotImplementedError


def adam_step(p: Tensor, state: dict, group: dict) -> None:
    """Moves a parameter by its gradient, and the running means in its `state`.

    The settings are its group's. Loshchilov and Hutter 2017, algorithm 2.
    """
    beta1, beta2 = group["betas"]
    if not state:
        zeros = at_least_float32(torch.zeros_like(p))
        state["step"] = 0
        state["mean"] = zeros
        state["square"] = zeros.clone()

    # The running means of the gradient and of its square.
    assert p.grad is not None  # as `Descent.step` has made sure
    gradient = at_least_float32(p.grad)
    state["step"] += 1
    mean = state["mean"].lerp_(gradient, 1 - beta1)
    square = state["square"].mul_(beta2)
    square.addcmul_(gradient, gradient, value=1 - beta2)

    # They began at 0, and are too small by these factors.
    mean_correction = 1 - beta1 ** state["step"]
    root_correction = math.sqrt(1 - beta2 ** state["step"])
    root = square.sqrt().div_(root_correction).add_(group["eps"])

    p.mul_(1 - group["lr"] * group["weight_decay"])
    p.addcdiv_(mean, root, value=-group["lr"] / mean_correction)


class AdamW(Descent):
    """Adam with decoupled weight decay. Loshchilov and Hutter 2017, algorithm 2.

    As in PyTorch, the decay of a step is `lr · weight_decay`; the paper's isn't times
    the rate. Of parameters with 16 bits the running means are kept in float32: a step
    of theirs is a thousandth, which 16 bits would round away. Raises ValueError for
    settings out of their range.
    """

    def __init__(
        self,
        params: Iterable[Tensor] | Iterable[dict],
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.01,
    ):
        defaults = {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay}
        super().__init__(params, defaults)

    def update(self, parameters: list[Tensor], group: dict) -> None:
        """Moves the parameters by their gradients and the settings of their group."""
        for p in parameters:
            adam_step(p, self.state[p], group)


def orthogonalize(matrices: Tensor, n_steps: int = 5) -> Tensor:
    """Pushes the singular values of the matrices to 1, within about 0.3.

    (... rows columns) -> (... rows columns). One that is 0 stays 0, and one below
    1/500 of the matrix's length, the root of the sum of its squares, is still on its
    way; so are all of a matrix whose length is not far above 1e-7, or overflows.
    Newton-Schulz steps of a quintic whose coefficients trade accuracy for speed; in
    float32 at least, also under autocast, for 16 bits would take their rounding for
    directions. Jordan et al. 2024 (Muon).
    """
    check_tensor("floats", "... r c", matrices=matrices)
    check_whole(n_steps=n_steps)
    a, b, c = QUINTIC

    # Lay them down: x xᵀ is smaller for a wide matrix than for a tall one.
    x = at_least_float32(matrices.reshape(-1, *matrices.shape[-2:]))
    is_tall = matrices.shape[-2] > matrices.shape[-1]
    if is_tall:
        x = x.mT

    # Of length 1, none has a singular value above 1; for large ones it diverges.
    x = x / (x.norm(dim=(-2, -1), keepdim=True) + 1e-7)

    # x <- a x + (b x xᵀ + c (x xᵀ)²) x
    with in_full_precision(x):
        for _ in range(n_steps):
            gram = x @ x.mT
            polynomial = torch.baddbmm(gram, gram, gram, beta=b, alpha=c)
            x = torch.baddbmm(x, polynomial, x, beta=a)

    if is_tall:
        x = x.mT
    return x.reshape(matrices.shape).to(matrices.dtype)


class Muon(Descent):
    """Momentum whose every step is orthogonalised: for the matrices within the blocks.

    Embeddings, norms and biases belong in groups with `"muon": False`, which are moved
    as by AdamW, with `betas` and `eps`. Raises ValueError for settings out of their
    range, and for a parameter that is not a matrix. Jordan et al. 2024.
    """

    def __init__(
        self,
        params: Iterable[Tensor] | Iterable[dict],
        lr: float = 0.02,
        momentum: float = 0.95,
        *,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
    ):
        defaults = {
            "lr": lr,
            "momentum": momentum,
            "muon": True,
            "betas": betas,
            "eps": eps,
            "weight_decay": weight_decay,
        }
        super().__init__(params, defaults)

    def add_param_group(self, param_group: dict) -> None:
        """Adds a group of parameters, now or later.

        Raises ValueError for settings out of their range, and for a parameter that is
        not a matrix, and then adds nothing.
        """
        settings = self.defaults | param_group
        check_bool(muon=settings["muon"])
        momentum = settings["momentum"]
        check_between(0, momentum=momentum)
        if momentum >= 1:
            raise ValueError(f"momentum is {momentum}; it must be below 1")
        super().add_param_group(param_group)
        group = self.param_groups[-1]
        if not group["muon"]:
            return
        for p in group["params"]:
            if p.dim() != 2:
                self.param_groups.pop()
                raise ValueError(
                    f"Muon takes matrices, not {tuple(p.shape)}: put the others in a"
                    ' group with "muon": False'
                )

    def update(self, parameters: list[Tensor], group: dict) -> None:
        """Moves the parameters: by Muon, or by AdamW in a group that says so."""
        if not group["muon"]:
            for p in parameters:
                adam_step(p, self.state[p], group)
            return

        # Matrices of one shape are orthogonalised together.
        shapes = dict.fromkeys(p.shape for p in parameters)  # in order, each once
        for shape in shapes:
            same_shape = [p for p in parameters if p.shape == shape]
            directions = [self.direction(p, group["momentum"]) for p in same_shape]
            updates = orthogonalize(torch.stack(directions))

            rows, columns = shape
            length = group["lr"] * max(1, rows / columns) ** 0.5
            for p, update in zip(same_shape, updates, strict=True):
                p.mul_(1 - group["lr"] * group["weight_decay"])
                p.sub_(shard_like(update, p), alpha=length)

    def direction(self, p: Tensor, momentum: float) -> Tensor:
        """Moves the running mean of a matrix's gradient. Returns Nesterov's step.

        That is the running mean with the newest gradient counted once more.
        """
        assert p.grad is not None  # as `Descent.step` has made sure
        gradient = at_least_float32(p.grad)
        state = self.state[p]
        if "momentum" not in state:
            state["momentum"] = torch.zeros_like(gradient)
        mean = state["momentum"].lerp_(gradient, 1 - momentum)
        return full_tensor(gradient.lerp(mean, momentum))


def muon(
    model: nn.Module,
    lr: float = 0.02,
    adam_lr: float = 1e-2,
    momentum: float = 0.95,
    weight_decay: float = 0.0,
) -> Muon:
    """Returns Muon for the matrices in the model's blocks, AdamW for everything else.

    `lr` is Muon's learning rate, `adam_lr` that of AdamW, whose betas are (0.9, 0.95).
    Raises ValueError for a model without `blocks`. Jordan et al. 2024.
    """
    matrices = []
    others = []
    for name, parameter in model.named_parameters():
        if "blocks" in name.split(".") and parameter.dim() == 2:
            matrices.append(parameter)
        else:
            others.append(parameter)
    if not matrices:
        raise ValueError(f"{type(model).__name__} has no blocks; use AdamW for it")

    groups: list[dict] = [
        {"params": matrices},
        {"params": others, "muon": False, "lr": adam_lr},
    ]
    return Muon(
        groups, lr=lr, momentum=momentum, betas=(0.9, 0.95), weight_decay=weight_decay
    )
