"""Decoding: from logits to text, for one reader or many. Chapters 06 and 10."""
