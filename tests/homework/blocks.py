"""Wrong answers to the homework of chapter 04."""

import torch


def each_from_x(x, blocks):
    ratios = [(block(x) - x).norm(dim=-1) / x.norm(dim=-1) for block in blocks]
    return torch.stack([ratio.mean() for ratio in ratios])


def chained(x, blocks, share):
    shares = []
    for block in blocks:
        new = block(x)
        shares.append(share(x, new))
        x = new
    return torch.stack(shares)


def whole_output(x, blocks):
    return chained(x, blocks, lambda x, y: (y.norm(dim=-1) / x.norm(dim=-1)).mean())


def lengths_compared(x, blocks):
    def share(x, y):
        return ((y.norm(dim=-1) - x.norm(dim=-1)) / x.norm(dim=-1)).mean()

    return chained(x, blocks, share)


def of_all_at_once(x, blocks):
    return chained(x, blocks, lambda x, y: (y - x).norm() / x.norm())


def of_means(x, blocks):
    def share(x, y):
        return (y - x).norm(dim=-1).mean() / x.norm(dim=-1).mean()

    return chained(x, blocks, share)


def over_what_comes_out(x, blocks):
    def share(x, y):
        return ((y - x).norm(dim=-1) / y.norm(dim=-1)).mean()

    return chained(x, blocks, share)


def rest_left_out(x, blocks):
    streams = []
    for block in blocks:
        streams.append(x)
        x = block(x)
    return torch.stack(streams)


def alone(x, blocks):
    return torch.stack([block(x) for block in blocks])


def by_function(x, blocks):
    streams = []
    for left_out in blocks:
        y = x
        for block in blocks:
            if block is not left_out:
                y = block(y)
        streams.append(y)
    return torch.stack(streams)


def never_put_back(x, blocks):
    streams = []
    for _ in list(blocks):
        blocks.pop(0)
        y = x
        for block in blocks:
            y = block(y)
        streams.append(y)
    return torch.stack(streams)


def difference(x, blocks):
    whole = x
    for block in blocks:
        whole = block(whole)
    return torch.stack([whole - (block(x) - x) for block in blocks])


WRONG = (
    ("writing", "Each block reads the one before", each_from_x),
    ("writing", "a block that doubles", whole_output),
    ("writing", "adds twice the length", lengths_compared),
    ("writing", "the mean is over the tokens", of_all_at_once),
    ("writing", "the mean is over the tokens", of_means),
    ("writing", "a block that doubles", over_what_comes_out),
    ("without", "without 2x", rest_left_out),
    ("without", "the stream is x", alone),
    ("without", "two blocks may be equal", by_function),
    ("without", "was changed", never_put_back),
    ("without", "without 2x", difference),
)
