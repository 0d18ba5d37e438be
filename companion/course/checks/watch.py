"""What an answer does beside what it gives."""

from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode


class Watch(TorchDispatchMode):
    """Within it `made` gets every tensor that is made, with the operation's name."""

    def __init__(self):
        super().__init__()
        self.made: list[tuple[str, Tensor]] = []

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        found = function(*args, **(kwargs or {}))
        tensors = found if isinstance(found, tuple | list) else [found]
        named = ((function._opname, x) for x in tensors)
        self.made += [pair for pair in named if isinstance(pair[1], Tensor)]
        return found
