"""Published models: a file's names and weights in our own code. Chapter 12.

Then what is done to them: adapters (14), 4 and 8 bits, joined layers (10 and 12).
"""
