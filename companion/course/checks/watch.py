"""Which tensors an answer makes, by which operations, and what it keeps of them."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from weakref import WeakSet

from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks
from torch.utils._python_dispatch import TorchDispatchMode


class Watch(TorchDispatchMode):
    """A context that collects in `made` every new tensor and its operation's name."""

    def __init__(self) -> None:
        super().__init__()
        self.made: list[tuple[str, Tensor]] = []

    def __torch_dispatch__(
        self,
        function: Callable,
        types: Sequence[type],
        args: tuple = (),
        kwargs: dict | None = None,
    ) -> object:
        result = function(*args, **(kwargs or {}))
        parts = result if isinstance(result, tuple | list) else [result]
        for part in parts:
            if isinstance(part, Tensor):
                self.made.append((function._opname, part))
        return result


class Saved:
    """Stands for a tensor that autograd keeps for the way back."""


@contextmanager
def count_kept(model: nn.Module) -> Iterator[list[int]]:
    """Collects what is kept for a way back, a number of tensors before each pass.

    Nothing may go back within: no tensor is there.
    """
    alive = WeakSet()
    n_alive = []

    def pack(tensor: Tensor) -> Saved:
        saved = Saved()
        alive.add(saved)
        return saved

    hook = model.register_forward_pre_hook(lambda *_: n_alive.append(len(alive)))
    with hook, saved_tensors_hooks(pack, id):
        yield n_alive
