"""Properties that must hold for whatever is drawn: `fuzz.py` runs them."""
