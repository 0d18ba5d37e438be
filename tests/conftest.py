"""One thread a worker: on a busy machine two workers of two threads wait in turn."""

import torch

torch.set_num_threads(1)
