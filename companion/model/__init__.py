"""The model: attention, positions, blocks, the GPT and its caches.

Chapters 01 to 04 and 07 to 10.
"""
