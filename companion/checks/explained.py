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


def hinted(hint: str, compare, *compared) -> None:
    """`compare`, with a hint for an answer that stops because sizes don't match."""
    try:
        compare(*compared)
    except Mistake as wrong:
        raise Mistake(f"{wrong}{hint * ('must match' in str(wrong))}") from None
