"""Which tensors an answer makes, and by which operations."""

from collections.abc import Callable, Sequence

from torch import Tensor
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
