"""Text: from characters to tokens, windows and batches. Chapters 00 and 08."""
