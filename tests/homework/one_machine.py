"""Wrong answers to the homework of chapter 09."""


def divided_in_half(gradients, scale):
    if not all(x.isfinite().all() for x in gradients):
        return None, scale / 2
    return [(x / scale).float() for x in gradients], scale


def nan_unseen(gradients, scale):
    if any(x.isinf().any() for x in gradients):
        return None, scale / 2
    return [x.float() for x in gradients], scale


def first_alone(gradients, scale):
    if gradients[0].isfinite().all():
        return [x.float() / scale for x in gradients], scale
    return None, scale / 2


def multiplied(gradients, scale):
    return [x.float() * scale for x in gradients], scale


def halved_always(gradients, scale):
    return [x.float() / scale for x in gradients], scale / 2


def inputs_alone(t, d, n_layers, size):
    return t * d * n_layers // size


def one_segment_alone(t, d, n_layers, size):
    return 16 * t * d * size


def one_block(t, d, n_layers, size):
    return t * d * (n_layers // size + 15)


def all_blocks(t, d, n_layers, size):
    return 16 * t * d * n_layers


def input_twice(t, d, n_layers, size):
    return t * d * (n_layers // size + 16 * size)


WRONG = (
    ("unscale", "float32 first", divided_in_half),
    ("unscale", "divide each by the scale", nan_unseen),
    ("unscale", "in tensor 1 of 0 and 1", first_alone),
    ("unscale", "divide each by the scale", multiplied),
    ("unscale", "the scale stays", halved_always),
    ("kept", "when a segment runs again", inputs_alone),
    ("kept", "the inputs of the other segments", one_segment_alone),
    ("kept", "570, wanted 1530", one_block),
    ("kept", "5760, wanted 1530", all_blocks),
    ("kept", "counted twice", input_twice),
)
