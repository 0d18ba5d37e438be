# Two commands do everything: `make lab` and `make test`. `make` alone lists the rest.
SHELL := /bin/bash
.DEFAULT_GOAL := help
VENV := .venv
BIN := $(VENV)/$(if $(filter Windows_NT,$(OS)),Scripts,bin)
READY := $(VENV)/ready
PYTHONS := python3 python3.14 python3.13 python3.12 python3.11 python
HAS_VENV := import sys, ensurepip, venv; sys.exit(sys.version_info < (3, 11))

.PHONY: help lab test notebooks browser bench lint student lock clean
