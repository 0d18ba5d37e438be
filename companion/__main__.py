"""`python -m companion` fetches the data: what is missing, and nothing twice."""

from .data import main

main()
