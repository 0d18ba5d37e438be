"""Published models: a file's names and weights in our own code. Chapter 12."""
