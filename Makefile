# Every target starts from a bare checkout: it makes what it needs, once.
SHELL := bash
# What a person may write. A recipe finds it in $ASKED_NAME as it was written, with all quotes, blanks and dollar signs.
ASKED = BUDGET DATA EXPERIMENT FOLDER INPUT LABEL MODEL OUTPUT REPO RUN SEARCH SET TEXT TEXT2
$(foreach name,$(ASKED),$(eval export ASKED_$(name) := $$(value $(name))))
# An option with what was written for a variable, if anything was: $(call given,--text=,TEXT).
given = $(if $(value $2),$1"$$ASKED_$2")
OVERRIDES = $(call given,--set=,SET)
# make takes experiment=cola for a variable of its own, which nothing reads.
OTHERS := $(foreach name,$(.VARIABLES),$(if $(filter command,$(firstword $(origin $(name)))),$(name)))
OTHERS := $(filter-out $(ASKED) OPEN ONCE RUNTIME,$(OTHERS))
MEANT := $(if $(OTHERS),$(filter $(ASKED) OPEN ONCE RUNTIME,$(shell echo $(OTHERS) | tr a-z A-Z)))
$(if $(MEANT),$(error write $(foreach name,$(MEANT),$(name)=) in capital letters))
# Where stages run: process, or docker (containers on this machine). Airflow reads it when it loads the Dag.
SPARK_BERT_RUNTIME ?= process
RUNTIME ?= $(SPARK_BERT_RUNTIME)
export SPARK_BERT_RUNTIME := $(RUNTIME)
CHOICE = --experiment "$${ASKED_EXPERIMENT:-movies}" $(call given,--data=,DATA) $(OVERRIDES)
RETRAIN = --experiment "$${ASKED_EXPERIMENT:-retrain}"
NEW_RUN = --run "$${SPARK_BERT_HOME:-work}/runs/$@-$$(date -u +%Y%m%d-%H%M%S)"
FETCHED = --experiment "$${ASKED_EXPERIMENT:-movies}" $(if $(value DATA),--set=data.path="$$(realpath -m "$$ASKED_DATA")") $(OVERRIDES)

.PHONY: help results run tune score stream serve rollback publish prune ui up down images package fetch test check fix lint unit unit-fast unit-slow unit-stages unit-engine unit-airflow e2e long-test docker-test platform-test gpu-check setup setup-one-rank setup-dev clean long-stages long-e2e long-docker benchmarks pictures clean-all

help: ## list the targets
	@sed -n 's/^\([a-z0-9-]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | expand -t 16

ifeq ($(RUNTIME),docker)
run: images
# The hub's files have to lie in the cache that containers see.
export HF_HOME = $(or $(SPARK_BERT_CACHE),$(or $(XDG_CACHE_HOME),$(HOME)/.cache)/spark-bert)/huggingface
endif
run: setup-one-rank ## fine-tune, gate and export: DATA=reviews.csv TEXT=column LABEL=column, or EXPERIMENT=sst2 DATA=/path/to/glue SET="training.epochs=1 gate.accuracy=0.89" RUNTIME=docker OPEN=1
	@scripts/airflow.sh python scripts/run.py $(CHOICE) $(call given,--text=,TEXT) $(call given,--text2=,TEXT2) $(call given,--label=,LABEL) $(if $(OPEN),--open)

tune: setup-one-rank ## look for better settings, and recommend them if they are: EXPERIMENT=sst2 DATA=/path/to/glue BUDGET=30m SEARCH=space.yaml (the section search) SET="training.ranks=1"
	@PYTHONPATH=. .venv/tasks/bin/python scripts/tune.py $(CHOICE) $(call given,--budget=,BUDGET) $(call given,--search=,SEARCH)

score: setup-one-rank ## add predictions to a table: INPUT=reviews.csv TEXT=column TEXT2=column OUTPUT=folder MODEL=folder (else the champion)
	@PYTHONPATH=. .venv/tasks/bin/python scripts/score.py $(RETRAIN) $(call given,--input=,INPUT) \
		$(call given,--text=,TEXT) $(call given,--text2=,TEXT2) $(call given,--model=,MODEL) \
		$(call given,--output=,OUTPUT) $(call given,--run=,RUN) $(OVERRIDES)

stream: setup-one-rank ## label rows as they arrive in FOLDER=folder: TEXT=column MODEL=folder (else the champion) ONCE=1 (only those that are there)
	@.venv/tasks/bin/python -m tasks stream $(RETRAIN) \
		$(call given,--set=streaming.folder=,FOLDER) $(call given,--set=streaming.text=,TEXT) \
		$(call given,--set=streaming.model=,MODEL) --set streaming.continuous=$(if $(ONCE),false,true) $(OVERRIDES) $(NEW_RUN)

serve: setup-one-rank ## answer over HTTP with the champion, or MODEL=folder of a package: EXPERIMENT=retrain SET="serving.port=8000"
	@PYTHONPATH=. .venv/tasks/bin/python -m tasks.serving $(RETRAIN) $(call given,--set=serving.model=,MODEL) $(OVERRIDES)

rollback: setup-one-rank ## make the previous champion the champion again: EXPERIMENT=retrain SET="dataset.name=reviews"
	@.venv/tasks/bin/python -m tasks rollback $(RETRAIN) $(OVERRIDES) $(NEW_RUN)

publish: setup-one-rank ## upload the model of a run to the Hugging Face hub, with a model card: RUN=work/runs/first REPO=my-team/reviews; without REPO, only write the card
	@.venv/tasks/bin/python -m tasks publish $(or $(call given,--run=,RUN),$(error write RUN=work/runs/NAME)) \
		$(call given,--set=publication.repository=,REPO) $(OVERRIDES)

prune: setup-one-rank ## list what no run, model, dataset or study refers to any more: SET="retention.days=60 retention.remove=true" removes it
	@.venv/tasks/bin/python -m tasks prune $(OVERRIDES) $(NEW_RUN)

ui: setup ## Airflow with its web UI, on http://localhost:8080
	@scripts/airflow.sh ui

up: images ## Airflow, Postgres, a Spark cluster and MLflow in containers: EXPERIMENT=sst2 DATA=/path/to/glue
	@$(call given,SPARK_BERT_DATA=,DATA) scripts/platform.sh up $(FETCHED)

down: ## stop what `make up` started, and keep its data
	@scripts/platform.sh down

images: ## build the images of the stages and of Airflow
	@scripts/images.sh

package: ## build a wheel of the plugin, for an Airflow of your own, in dist/
	@scripts/tools.sh
	@rm -rf dist build plugins/*.egg-info # setuptools would put modules that are gone into the wheel
	@scripts/uv.sh build --quiet --wheel --build-constraints requirements/tasks-build.lock --require-hashes
	@rm -rf build plugins/*.egg-info
	@ls dist/*.whl

fetch: setup-one-rank ## fetch the models and data that an experiment needs, and check its files: EXPERIMENT=cola DATA=/path/to/glue
	@.venv/tasks/bin/python -m tasks fetch $(FETCHED)

setup: ## make both environments and fetch the default corpus and encoder
	@scripts/setup.sh

setup-one-rank: ## the same without Horovod, which takes minutes to compile; make run adds it once a training needs it
	@scripts/setup.sh one-rank

setup-dev: setup
	@scripts/environment.sh tasks dev
	@scripts/environment.sh airflow dev schemas pictures

# The longest first: with `make --jobs=3 test` the others run at the same time, and all processors are busy to the end.
# Three keep two processors busy, for each of them waits now and then: for packages, a process that starts, an interval.
test: docker-test e2e unit-stages unit-engine unit-airflow lint ## all tests except long-test and platform-test; --jobs=3 --output-sync=target takes half the time

check: ## ruff and import rules: takes seconds, and needs only the environment .venv/tools
	scripts/tools.sh ruff check .
	scripts/tools.sh ruff format --check .
	PYTHONPATH=plugins scripts/tools.sh lint-imports

fix: ## repair what ruff can repair, and format
	scripts/tools.sh ruff check --fix-only .
	scripts/tools.sh ruff format .

lint: check setup-dev ## make check, and mypy in both environments
	.venv/tasks/bin/mypy include tasks tests/include tests/tasks benchmarks
	.venv/airflow/bin/mypy include plugins/spark_bert plugins/spark_bert_plugin.py dags scripts tests/airflow_home.py tests/plugins tests/dags tests/e2e

unit: unit-stages unit-engine unit-airflow ## the unit tests of both environments, except those marked long

# These folders start neither ranks nor Airflow. unit-slow runs everything else that is not marked long.
FAST = tests/include tests/tasks/encoder tests/tasks/scoring tests/tasks/sources tests/tasks/tracking

unit-fast: setup-dev ## the unit tests that take less than two minutes in all
	.venv/tasks/bin/python -m pytest $(FAST)

unit-slow: setup-dev ## the unit tests that unit-fast leaves out
	.venv/tasks/bin/python -m pytest tests/tasks $(addprefix --ignore=,$(FAST)) -m "not long"
	.venv/airflow/bin/python -m pytest tests/plugins tests/dags

unit-stages: setup-dev
	.venv/tasks/bin/python -m pytest tests/include tests/tasks/stages -m "not long"

unit-engine: setup-dev
	.venv/tasks/bin/python -m pytest tests/tasks --ignore tests/tasks/stages -m "not long"
	.venv/tasks/bin/python -m pytest benchmarks --ignore benchmarks/test_quick.py -m "not long"

unit-airflow: setup-dev
	.venv/airflow/bin/python -m pytest tests/plugins tests/dags

e2e: setup-dev ## the pipeline on some of the bundled corpus, by make run and from the web UI
	.venv/airflow/bin/python -m pytest tests/e2e --ignore tests/e2e/docker -m "not long"

# What make test leaves out for the time that it takes: each part can be run by itself.
long-test: long-stages long-e2e long-docker benchmarks ## the tests marked long, and the quick form of each benchmark

long-stages: setup-dev ## trainings of several ranks on each way of communicating, in Spark's executors, and with lost ranks; the service under load for ten minutes
	.venv/tasks/bin/python -m pytest tests/include tests/tasks -m long

long-e2e: setup-dev ## ablations, studies, submissions and retraining through a scheduler
	.venv/airflow/bin/python -m pytest tests/e2e --ignore tests/e2e/docker -m long

long-docker: setup-dev ## killed workers and containers, restarts and ownership on a Docker engine
	.venv/airflow/bin/python -m pytest tests/e2e/docker --ignore tests/e2e/docker/test_compose.py -m long

benchmarks: setup-dev ## the quick form of each benchmark, which only checks that it runs
	.venv/tasks/bin/python -m pytest benchmarks

results: setup ## print again the tables of docs/RESULTS.md that take less than an hour in all: DATA=/path/to/glue
	@.venv/tasks/bin/python -m benchmarks.results $(call given,--data=,DATA)

# It sets nothing up, so that it also runs without a network, in whatever environment a machine with a GPU has.
gpu-check: ## where there is a GPU: is the engine correct, and how fast compared with transformers' Trainer; less than ten minutes
	@$(or $(wildcard .venv/tasks/bin/python),python3) -m benchmarks.gpu $(call given,--output=,OUTPUT)

docker-test: setup-dev ## images and stages on a Docker engine, which is installed and started if needed
	.venv/airflow/bin/python -m pytest tests/e2e/docker --ignore tests/e2e/docker/test_compose.py -m "not long"

platform-test: setup-dev ## the platform that make up starts, on a Docker engine: about ten minutes
	.venv/airflow/bin/python -m pytest tests/e2e/docker/test_compose.py

pictures: setup ## take the pictures of README and docs again: needs chromium, and takes about ten minutes
	@scripts/environment.sh airflow pictures
	@.venv/airflow/bin/python -m tests.e2e.pictures

clean: ## remove the environments and what was built; runs and models stay
	rm -rf .venv dist build

clean-all: clean ## remove work as well: all runs, models, MLflow's and Airflow's databases
	rm -rf work
