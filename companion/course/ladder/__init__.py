"""The ladder: what each part of the machine buys, at one price, on one bar chart.

Each chapter from 00 to 05 ends on its rung. A rung is the loss on the whole validation
text, in nats a character, of a model that was trained for 300 steps of 24 windows of 64
characters. Chapter 17 compares its rungs with each other, after 150 steps each. `make
ladder` runs these chapters with three other seeds and stores theirs.
"""

from .drawings import compare, draw, gained
from .measuring import parts_of, rung, validation_loss, write
from .stored_rungs import STORED, band, gains, measured, stored, within
