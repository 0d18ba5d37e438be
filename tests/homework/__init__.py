"""Wrong answers to the bank's questions, each with words of the check that rejects it.

Right ones aren't in public. A module has a tuple WRONG of (question, words, answer).
"""
