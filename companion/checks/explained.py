"""An error in an answer, told in words of help."""

import functools

from .compare import Mistake


def explained(answer, kind, words):
    """The answer, with words of help where it stops with an error of this kind."""

    @functools.wraps(answer)
    def run(*case):
        try:
            return answer(*case)
        except kind as error:
            if type(error) is NotImplementedError:
                raise
            return Mistake(words)

    return run if callable(answer) else answer
