"""One product for several linear layers of the same input, to decode faster.

With one row a product does little for what it costs to begin. Queries, keys and values
are made of one x, and so are the two branches of a gated layer.
"""

import torch
from torch import Tensor, nn

from .attention import MultiHeadAttention
from .blocks import GatedFeedForward

TOGETHER = {
    MultiHeadAttention: ("to_queries", "to_keys", "to_values"),
    GatedFeedForward: ("to_gate", "to_hidden"),
}


class Joined:
    """Linear layers of `owner` as one, `owner.joined`.

    What it made of an x is kept until the last of them was asked for it. It is no
    module itself: to call one costs as much as a small operation.
    """

    def __init__(self, owner: nn.Module, layers: list[nn.Linear]):
        self.owner, self.asked, self.given = owner, None, ()
        self.sizes = [layer.out_features for layer in layers]
        weight = torch.cat([layer.weight.detach().t() for layer in layers], 1).t()
        owner.joined = nn.Linear(1, 1, layers[0].bias is not None)
        owner.joined.out_features, owner.joined.in_features = weight.shape
        owner.joined.weight = nn.Parameter(weight, requires_grad=False)
        if owner.joined.bias is not None:
            bias = torch.cat([layer.bias.detach() for layer in layers])
            owner.joined.bias = nn.Parameter(bias, requires_grad=False)

    def part(self, x: Tensor, i: int) -> Tensor:
        """What layer i makes of x (... i)."""
        if x is not self.asked:
            whole = self.owner.joined.forward(x)
            self.asked, self.given = x, whole.split(self.sizes, -1)
        part = self.given[i]
        if i == len(self.sizes) - 1:
            self.asked, self.given = None, ()
        return part


class Part:
    """One of the joined layers, in its old place."""

    def __init__(self, joined: Joined, i: int):
        self.joined, self.i = joined, i
        self.in_features = joined.owner.joined.in_features

    def __call__(self, x: Tensor) -> Tensor:
        return self.joined.part(x, self.i)


def join(model: nn.Module) -> nn.Module:
    """The model itself, to be used and not trained: its products of one x joined."""
    for owner in [*model.modules()]:
        names = TOGETHER.get(type(owner), ())
        if names and not hasattr(owner, "joined"):
            joined = Joined(owner, [getattr(owner, name) for name in names])
            for i, name in enumerate(names):
                delattr(owner, name)
                setattr(owner, name, Part(joined, i))
    return model
