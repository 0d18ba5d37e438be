"""Wrong answers to the homework of chapter 13."""

from torch.nn.functional import normalize, rms_norm


def length_forgotten(x, direction):
    return x - (x @ direction)[..., None] * direction


def divided_once(x, direction):
    return x - (x @ direction)[..., None] * normalize(direction, dim=0)


def last_place_alone(x, direction):
    x = x.clone()
    unit = normalize(direction, dim=0)
    x[:, -1] -= (x[:, -1] @ unit)[:, None] * unit
    return x


def whole_features(x, direction):
    return x.masked_fill(direction != 0, 0.0)


def subtracted(x, direction):
    return x - direction


def mirrored(x, direction):
    unit = normalize(direction, dim=0)
    return x - 2 * (x @ unit)[..., None] * unit


def each_by_its_own_size(parts, gain, matrix, token):
    return rms_norm(parts, gain.shape, gain) @ matrix[token]


def not_divided(parts, gain, matrix, token):
    return parts * gain @ matrix[token]


def gain_missing(parts, gain, matrix, token):
    return parts * parts.sum(0).square().mean().rsqrt() @ matrix[token]


def all_tokens(parts, gain, matrix, token):
    return rms_norm(parts, gain.shape, gain) @ matrix.T


def even(parts, gain, matrix, token):
    logit = rms_norm(parts.sum(0), gain.shape, gain) @ matrix[token]
    return logit.expand(len(parts)) / len(parts)


def mean_square_of_all(parts, gain, matrix, token):
    return parts * gain * parts.square().mean().rsqrt() @ matrix[token]


WRONG = (
    ("erased", "the direction's squared length", length_forgotten),
    ("erased", "the direction's squared length", divided_once),
    ("erased", "all places", last_place_alone),
    ("erased", "right angles", whole_features),
    ("erased", "the direction's squared length", subtracted),
    ("erased", "the direction's squared length", mirrored),
    ("shares", "whole stream's size", each_by_its_own_size),
    ("shares", "together they are", not_divided),
    ("shares", "the gain is missing", gain_missing),
    ("shares", "the shape is (3, 2)", all_tokens),
    ("shares", "divided by its own size", even),
    ("shares", "together they are", mean_square_of_all),
)
