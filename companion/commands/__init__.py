"""What is started in a terminal, as `python -m companion` and a word."""
