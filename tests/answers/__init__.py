"""Answers to the exercises, right and wrong ones, a module for each chapter.

A module's RIGHT has pairs (check, answer). Its WRONG has (check, answer, words), where
the words are a regular expression for what the check must say; those of an answer with
a name stand above it, as `@wrong(check, words)`.
"""

from collections.abc import Callable


class Wrong(list):
    """Rows of a table WRONG; called above an answer, it takes it up."""

    def __call__(self, check: Callable, words: str) -> Callable:
        def take(answer: Callable) -> Callable:
            self.append((check, answer, words))
            return answer

        return take
