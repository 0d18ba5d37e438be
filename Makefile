# Readers need two: `make data` and `make lab`. What must pass is `.ci/run`. `make` alone
# lists all.
# Variables in small letters are given in a call, as in `make tune data=questions.jsonl`.
SHELL := bash
.DEFAULT_GOAL := help

VENV := .venv
BIN := $(VENV)/$(if $(filter Windows_NT,$(OS)),Scripts,bin)
PYTHON := $(BIN)/python
# Notebooks run in a folder of their own, where a path from here would lead elsewhere.
ifdef COMPANION_CACHE
ifeq ($(filter /% ~% %:%,$(firstword $(COMPANION_CACHE))),)
export COMPANION_CACHE := $(CURDIR)/$(COMPANION_CACHE)
endif
endif
PYTHONS := python3 python3.14 python3.13 python3.12 python3.11 python
NPM := mathjax@3.2.2 reveal.js@5.2.1
NOTEBOOKS := $(wildcard notebooks/*.ipynb)
# 05 takes longest, and keeps the model that some later ones read, or train for a minute
# where it is missing. So 05 begins, and those end, the longest of them first.
LAST := $(foreach n,15 06 12 10 07 09,$(wildcard notebooks/$(n)_*.ipynb))
ORDERED := $(wildcard notebooks/05_*.ipynb)
ORDERED += $(filter-out $(ORDERED) $(LAST),$(NOTEBOOKS)) $(LAST)

.PHONY: help data lab train explore describe chat tune test notebooks browser pages \
	fuzz seeds kernels mutants bench tables ladder assignment classroom exam site slides \
	machine guide pictures links lock clean classroom-extra

help: ## list the targets
	@sed -n 's/^\([a-z]*\):.*## /\1|/p' Makefile | \
		while IFS='|' read -r name what; do printf 'make %-10s %s\n' "$$name" "$$what"; done

# For readers.

data: $(VENV)/ready ## set up: the environment, and the data in the cache
	@$(PYTHON) -m companion

# JupyterLab's question about its news would cover the first picture.
lab: export JUPYTER_CONFIG_PATH := $(CURDIR)/docs/jupyter$(JUPYTER_CONFIG_PATH:%=:%)
lab: data ## open the course in JupyterLab
	$(PYTHON) -m jupyterlab --LabApp.default_url=/lab/tree/notebooks/00_tokens.ipynb \
		$$(test "$$(id -u)" = 0 && echo --allow-root)

train: data ## train for ten minutes, and go on where it was stopped
	$(PYTHON) -m companion train --recipe long

explore: data ## see into your model of chapter 05 in a browser, in one file that works offline
	@$(PYTHON) -m companion explore

describe: $(VENV)/ready ## say what a published model is made of: make describe model=folder
	@$(PYTHON) -m companion describe "$(model)"

chat: data ## talk with the published model of chapter 12 in the terminal
	@$(PYTHON) -m companion chat $(if $(adapter),--adapter "$(adapter)")

tune: data ## teach it your own answers: make tune data=questions.jsonl
	@$(PYTHON) -m companion tune $(if $(data),--data "$(data)") \
		$(if $(adapter),--adapter "$(adapter)")

# Tests, and what is too long for them.

# Two processes with one thread each. Two threads of one process wait for each other in
# a loop that keeps its core, and beside another busy process a token takes 20 to 100 times
# as long; a shorter loop (GOMP_SPINCOUNT=1000) costs an idle machine 9 to 22%.
test: export OMP_NUM_THREADS := 1
test: data ## run all tests, and all notebooks under strict nbval
	$(PYTHON) -m ruff check .
	$(PYTHON) -m ruff format --check .
	$(PYTHON) -m mypy
	$(PYTHON) -m pytest -p no:nbval -n 2 --dist worksteal tests
	$(PYTHON) -m pytest -n 2 --dist loadfile --no-loadscope-reorder \
		--nbval --nbval-current-env --nbval-cell-timeout=600 $(ORDERED)

notebooks: data ## run the notebooks and store their outputs; one=05_training for one
	$(PYTHON) tests/tools/execute.py $(if $(one),notebooks/$(one).ipynb,$(NOTEBOOKS))

browser: export OMP_NUM_THREADS := 1
browser: data ## run the notebooks in JupyterLab under Chromium; seconds=30 for a part
	$(PYTHON) tests/tools/browser.py $(if $(seconds),--seconds $(seconds))

pages: site ## visit the site, the slides and `make explore`'s page in Chromium
	$(PYTHON) tests/tools/pages.py
	$(PYTHON) tests/tools/explore.py

fuzz: data ## try random models, caches, cuts and interruptions for ten minutes
	$(PYTHON) tests/tools/fuzz.py

seeds: data ## run the chapters with other seeds; n=3 seeds, one=05 for one chapter
	$(PYTHON) tests/tools/seeds.py -n $(or $(n),3) $(one)

kernels: data ## tests and notebooks as on other processors, in hours; one=avx2 on=notebooks
	$(PYTHON) tests/tools/kernels.py -n 2 $(if $(one),--setting $(one)) $(on)

mutants: data ## put small faults into the package and see which no test notices
	$(PYTHON) -m pip install --quiet --constraint requirements.lock --editable .[mutants]
	$(PYTHON) tests/tools/mutants.py $(one)

# Measurements.

bench: data ## measure training and decoding against what others would use
	-$(PYTHON) -m pip install --quiet --editable .[bench]
	$(PYTHON) tests/benchmarks/bench.py

tables: $(VENV)/ready ## write what `make bench` measured into docs/speed.md and the README
	$(PYTHON) tests/benchmarks/tables.py

ladder: data ## measure the ladder's rungs with three other seeds; one=03 for one chapter
	$(PYTHON) tests/tools/ladder.py $(one)

# For teachers.

assignment: classroom-extra ## write the exercises as an nbgrader course to build/course/; bank=1 with homework
	$(PYTHON) tests/tools/assignment.py $(if $(bank),--bank)

classroom: classroom-extra ## hold such a course: hand in, grade, give feedback
	$(PYTHON) tests/tools/classroom.py

exam: $(VENV)/ready ## write a paper exam for each name: make exam roster=students.csv
	@$(PYTHON) docs/exam.py "$(roster)" $(if $(seed),--seed "$(seed)")

# The site.

site: slides ## build the site in build/site/: chapters, reference, search, slides
	$(PYTHON) docs/assemble.py
	$(PYTHON) -m sphinx -W --keep-going --quiet -c docs build/source build/site
	rm -rf build/site/slides && cp -R build/slides build/site/slides

slides: build/npm/ready ## write a deck for each chapter to build/slides/
	$(PYTHON) docs/slides.py

# Upkeep.

machine: data ## renew the course's own my_gpt.py from what the chapters keep
	$(PYTHON) tests/tools/course_gpt.py

guide: data ## renew the mistakes in the teacher's guide from the checks
	$(PYTHON) tests/tools/guide.py

pictures: data ## renew the README's picture from chapter 05's model
	$(PYTHON) tests/tools/pictures.py

links: $(VENV)/ready ## put this clone's own remote into the addresses of docs/install.md
	$(PYTHON) tests/tools/own_remote.py

lock: data ## pin every package anew, within the bounds of pyproject.toml
	$(PYTHON) tests/tools/lock.py

clean: ## remove the environment and what was built; the data cache stays
	@for kept in submitted gradebook.db; do if test -e build/course/$$kept; then \
		echo "error: build/course/$$kept would be lost: move build/course away" >&2; \
		exit 1; fi; done
	rm -rf $(VENV) build

# What these need.

# Without the network it is enough that all is installed.
classroom-extra: data
	$(PYTHON) -m pip install --quiet --constraint requirements.lock \
		--no-build-isolation --editable .[classroom]

# Once, and again when the environment is new: from here on nothing needs the network.
build/npm/ready: $(VENV)/ready
	$(PYTHON) -m pip install --quiet --constraint requirements.lock --editable .[site]
	npm install --prefix build/npm --no-audit --no-fund --silent $(NPM)
	touch $@

# Anew also where the project was moved or copied: it names the folder it is for.
ifneq ($(shell cat $(VENV)/ready 2>/dev/null),$(CURDIR))
.PHONY: $(VENV)/ready
endif
$(VENV)/ready: requirements.lock pyproject.toml
	@for python in $(PYTHONS); do \
		command -v $$python >/dev/null || continue; \
		if why=$$($$python tests/tools/served.py 2>/dev/null); then \
			echo "$$python -m venv $(VENV)"; exec $$python -m venv $(VENV); \
		fi; \
		echo "$$python: $${why:-it does not start, or is too old}" >&2; \
	done; \
	echo "error: a Python from 3.11 to 3.14 with venv is needed: install python3 and" \
		"python3-venv (apt), or python@3.13 (brew), or from python.org" >&2; exit 1
	@rm -f $(VENV)/install.log
	$(PYTHON) -m pip install --requirement requirements.lock --log $(VENV)/install.log \
		|| { $(PYTHON) tests/tools/served.py $(VENV)/install.log >&2; exit 1; }
	$(PYTHON) -m pip install --no-deps --no-build-isolation --editable .
	@echo "$(CURDIR)" > $@
