"""What can be wrong with an answer, in words that a notebook shows as one line."""

from .words import gives


class Mistake(AssertionError):
    """A wrong answer, shown in a notebook as its one line, without a traceback.

    Two are the same mistake if they have one `identity`, by default their words.
    """

    def __init__(self, words: str, identity: object = None):
        super().__init__(words)
        self.identity = identity or words

    @property
    def has_example(self) -> bool:
        """Whether it helps to know for which input."""
        return True

    def _render_traceback_(self) -> list[str]:
        return [f"✗ {self}"]


class Stop(Mistake):
    """An answer that an error has stopped; `own` if its own code has raised it.

    Two are the same if the errors are of one class and say the same, in any order: of
    two sizes that don't fit each other either may come first.
    """

    def __init__(self, error: BaseException, own: bool):
        self.error = error
        self.own = own
        self.message = message(error)
        name = type(error).__name__
        words = f"it stops with {name}: {self.message}".strip(" .:")
        identity = (type(error), sorted(self.message.split()))
        super().__init__(words, identity)

    @property
    def has_example(self) -> bool:
        """Whether its words need an input beside them."""
        return not self.explains_itself()

    def explains_itself(self) -> bool:
        """Whether its own words are the best: a slip of the pen, and no mistake."""
        slips = NameError | ImportError | AttributeError | SyntaxError
        wrong_call = isinstance(self.error, TypeError) and "argument" in self.message
        return isinstance(self.error, slips) or wrong_call


class Unusable(Mistake):
    """What an answer gave, where the check's own arithmetic could not use it."""

    def __init__(self, result: object):
        super().__init__(gives(result))


class Effect(Mistake):
    """What an answer does beside giving a result."""

    has_example = False


def message(error: BaseException) -> str:
    """The first line of what an error says, in short."""
    try:
        lines = str(error).strip()[:99].splitlines()
    except Exception:
        return ""
    return lines[0].strip(" .:") if lines else ""
