# Thin on purpose: every target calls the module of hack/ that knows how.
SHELL := bash
PYTHON := .venv/bin/python
PYTHON_RUN := @PYTHONUNBUFFERED=1 $(PYTHON) -m

.DEFAULT_GOAL := help
.PHONY: help demo test test-full bench-recovery bench-training lint verify images cluster clean clean-cache bootstrap

help: ## show what can be made
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 22
	@echo "Variables: DDPJOB_CLUSTER=registry|build  DDPJOB_CLUSTER_NAME=name  DDPJOB_IP_FAMILY=ipv4|ipv6|dual  USE_EXISTING_CLUSTER=1  IMAGE_REGISTRY=host/path  KUBEBUILDER_ASSETS=folder  KEEP_GOING=1"

bootstrap:
	@hack/bootstrap.sh

demo: bootstrap ## a cluster, the operator on it, and one training from apply to accuracy
	$(PYTHON_RUN) hack.cluster.session hack.demo

test: bootstrap ## all checks and tests that must pass, the quick ones first
	$(PYTHON_RUN) hack.checks.stages

test-full: bootstrap ## test, and the tests that take longer
	$(PYTHON_RUN) hack.checks.stages --full

bench-recovery: bootstrap ## seconds from a fault to the next step of all ranks; ARGS="--runs 5 --faults process"
	$(PYTHON_RUN) hack.cluster.session hack.bench.recovery $(ARGS)

bench-training: bootstrap ## what the library costs a training; fails where a goal is missed; ARGS="--pairs 20"
	$(PYTHON_RUN) hack.bench.training $(ARGS)

lint: bootstrap ## format, style, types, imports, length of files and vocabulary
	$(PYTHON_RUN) hack.lint

verify: bootstrap ## generated files match their sources
	$(PYTHON_RUN) hack.generate --check

images: bootstrap ## the operator's and the trainer's images, on every worker of the cluster
	$(PYTHON_RUN) hack.cluster.session

cluster: bootstrap ## a kind cluster: one control plane, two workers
	$(PYTHON_RUN) hack.cluster.kind

clean: ## remove the cluster and everything that was made for it; ALL=1 also downloads and builds
	@hack/bootstrap.sh
	$(PYTHON_RUN) hack.clean $(if $(ALL),--all)

clean-cache: ## clean, and remove downloads and builds
	@$(MAKE) --no-print-directory clean ALL=1
