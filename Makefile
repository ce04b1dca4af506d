# Thin on purpose: every target calls the module of hack/ that knows how.
SHELL := bash
PYTHON := .venv/bin/python
PYTHON_RUN := @PYTHONUNBUFFERED=1 $(PYTHON) -m

.DEFAULT_GOAL := help
.PHONY: help demo test test-full bench-recovery bench-resize bench-training bench-scale lint verify images release cluster clean clean-cache bootstrap

help: ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 22
	@echo "Variables: DDPJOB_CLUSTER=registry|build  DDPJOB_CLUSTER_NAME=name  DDPJOB_IP_FAMILY=ipv4|ipv6|dual  USE_EXISTING_CLUSTER=1  IMAGE_REGISTRY=host/path  RELEASE_URL=url  KUBEBUILDER_ASSETS=folder  KEEP_GOING=1"

bootstrap:
	@hack/bootstrap.sh

demo: bootstrap ## create a cluster, deploy the operator, and run one training job to completion
	$(PYTHON_RUN) hack.cluster.session hack.demo

test: bootstrap ## run all checks and tests that must pass, the fastest first
	$(PYTHON_RUN) hack.checks.stages

test-full: bootstrap ## run test, and the slow tests
	$(PYTHON_RUN) hack.checks.stages --full

bench-recovery: bootstrap ## measure the seconds from a fault to the next step of all ranks; ARGS="--runs 5 --faults process"
	$(PYTHON_RUN) hack.cluster.session hack.bench.recovery $(ARGS)

bench-resize: bootstrap ## measure the seconds from a change of size to the next step of all ranks; ARGS="--runs 5"
	$(PYTHON_RUN) hack.cluster.session hack.bench.resize $(ARGS)

bench-training: bootstrap ## measure the overhead of the trainer library; fails if a goal is missed; ARGS="--pairs 20"
	$(PYTHON_RUN) hack.bench.training $(ARGS)

bench-scale: bootstrap ## measure how fast pods are created, compared with a bare client and Jobs; ARGS="--runs 3 --cases one"
	$(PYTHON_RUN) tests.scale.bench $(ARGS)

lint: bootstrap ## check format, style, types, imports, file lengths and vocabulary
	$(PYTHON_RUN) hack.lint

verify: bootstrap ## check that generated files match their sources
	$(PYTHON_RUN) hack.generate --check

images: bootstrap ## build the operator and trainer images and load them onto the workers
	$(PYTHON_RUN) hack.cluster.session

release: bootstrap ## build all files of a release from the last commit into .build/release: docs/release.md
	$(PYTHON_RUN) hack.release $(ARGS)

cluster: bootstrap ## create a kind cluster: one control plane, two workers
	$(PYTHON_RUN) hack.cluster.kind

clean: ## remove the cluster and everything created for it; ALL=1 removes downloads and builds too
	@hack/bootstrap.sh
	$(PYTHON_RUN) hack.clean $(if $(ALL),--all)

clean-cache: ## clean, and remove downloads and builds
	@$(MAKE) --no-print-directory clean ALL=1
