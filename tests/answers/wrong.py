"""A table of wrong answers, which each of them joins by a line above it."""

from collections.abc import Callable


class Wrong(list):
    """Rows of a table WRONG; called above an answer, it takes it up."""

    def __call__(self, check: Callable, words: str) -> Callable:
        def take(answer: Callable) -> Callable:
            self.append((check, answer, words))
            return answer

        return take
