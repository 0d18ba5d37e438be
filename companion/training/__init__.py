"""Training: the loop, optimizers, checkpoints, processes. Chapters 05 and 11."""
