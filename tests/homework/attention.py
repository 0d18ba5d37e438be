"""Wrong answers to the homework of chapter 01."""

import torch


def nan_at_zero(weights):
    return (-(weights * weights.log()).sum(-1)).exp()


def entropy_itself(weights):
    return -torch.special.xlogy(weights, weights).sum(-1)


def bits(weights):
    return (torch.special.entr(weights).sum(-1) / torch.tensor(2.0).log()).exp()


def over_queries(weights):
    return torch.special.entr(weights).sum(0).exp()


def mean_over_queries(weights):
    return torch.special.entr(weights).sum(-1).mean().exp()


def inverse_squares(weights):
    return 1 / weights.square().sum(-1)


def counted(weights):
    return (weights > 0).sum(-1).float()


def with_the_future(texts):
    return texts[:, None] == texts


def causal_alone(texts):
    return torch.ones(len(texts), len(texts)).tril() > 0


def upside_down(texts):
    return ~((texts[:, None] == texts).tril())


def earlier_texts(texts):
    return (texts[:, None] <= texts).tril()


def later_texts(texts):
    return (texts[:, None] >= texts).tril()


def one_back(texts):
    return (texts[:, None] == texts).tril().triu(-1)


def numbers(texts):
    return (texts[:, None] == texts).tril().float()


WRONG = (
    ("n_keys", "0 ln 0 is NaN", nan_at_zero),
    ("n_keys", "this is the entropy", entropy_itself),
    ("n_keys", "entropy in nats", bits),
    ("n_keys", "the shape is (5,)", over_queries),
    ("n_keys", "the shape is ()", mean_over_queries),
    ("n_keys", "2.83 keys", inverse_squares),
    ("n_keys", "2.83 keys", counted),
    ("text_mask", "sees later ones", with_the_future),
    ("text_mask", "sees another text", causal_alone),
    ("text_mask", "each token sees itself", upside_down),
    ("text_mask", "sees another text", earlier_texts),
    ("text_mask", "sees another text", later_texts),
    ("text_mask", "does it see all of its past", one_back),
    ("text_mask", "a boolean mask", numbers),
)
