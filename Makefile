# For developers; users need only ./mooring. `make help` lists the targets.
.DEFAULT_GOAL := help
CACHE ?= $(or $(MOORING_CACHE),$(or $(XDG_CACHE_HOME),$(HOME)/.cache)/mooring)
DEV := MOORING_LOCK=dev ./mooring exec
LOCK = uv pip compile -q --generate-hashes --universal --python-version 3.11 --no-header --no-annotate pyproject.toml

.PHONY: upgrade audit nightly web help check format types generated test test-all test-operator test-clusters mutants flakes kubernetes kubernetes-down transcript bare image dist site specs crds soak soak-mysql campaign campaign-real bench api lock

help: ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1|\2/p' $(MAKEFILE_LIST) | column -t -s'|'

check: ## everything that needs no server: lint, format, types, layers, generated files
	$(DEV) ruff check .
	$(DEV) ruff format --check .
	$(DEV) mypy
	$(DEV) lint-imports
	$(DEV) python hack/objects.py --check
	$(DEV) python -m mooring crds --check
	$(DEV) python -m hack.metrics --check
	$(DEV) python -m hack.manpage --check
	$(DEV) python hack/web.py --check
	./mooring --help >/dev/null

format: ## format and fix what can be fixed by itself
	$(DEV) ruff check --fix .
	$(DEV) ruff format .

generated: ## generate the typed objects, the CRDs, the list of metrics and the manual page again
	$(DEV) python hack/objects.py
	$(DEV) python -m mooring crds --write
	$(DEV) python -m hack.metrics
	$(DEV) python -m hack.manpage

crds: generated ## the same

test: ## unit and embedded tiers
	./mooring test

test-operator: ## unit and embedded tests of one operator: make test-operator NAME=redis-cluster ARGS='--lf'
	./mooring test --operator $(NAME) $(if $(ARGS),-- $(ARGS))

test-all: ## every tier
	./mooring test --all

test-clusters: ## the operators' tests again, on a real kube-apiserver: make test-clusters ARGS='-k roll'
	./mooring test --tier clusters $(if $(ARGS),-- $(ARGS))

nightly: ## long variants that CI leaves out
	./mooring test --tier nightly

mutants: ## break every listed mechanism and see its test fail: make mutants ONLY='cache*'
	$(DEV) python hack/mutants.py -j $(or $(JOBS),2) --only '$(or $(ONLY),*)'

upgrade: ## from an earlier commit to this tree and back, with clusters that are written to: make upgrade FROM=8309e4a2 ARGS='--only mysql'
	$(DEV) python hack/upgrade.py --from $(FROM) $(ARGS)

audit: ## known vulnerabilities of the locked dependencies, by PyPI
	$(DEV) python hack/audit.py

flakes: ## tests that fail now and then: make flakes ROUNDS=10 LOAD=4 KINDS=busy,pinned TIERS=unit ARGS='tests/cli/test_why.py'
	$(DEV) python hack/flakes.py --rounds $(or $(ROUNDS),10) --load $(or $(LOAD),4) $(if $(KINDS),--kinds $(KINDS)) \
	  $(if $(TIERS),--tiers $(TIERS)) $(if $(ARGS),-- $(ARGS))

kubernetes: ## start a real control plane on loopback; NODE=1: with a node that runs pods (root)
	$(DEV) python hack/kubernetes/controlplane.py up $(if $(NODE),--node)

kubernetes-down: ## stop it and leave nothing behind
	$(DEV) python hack/kubernetes/controlplane.py down

transcript: ## every command of docs/operations.md on a real cluster made for it, and hand-over times; ON=embedded
	$(DEV) python -m hack.operations --on $(or $(ON),real)

bare: ## seconds from nothing to a Healthy Redis on a real node, step by step; COLD=1: with an empty cache (minutes)
	$(DEV) python -m bench.bare $(if $(COLD),--cold)

image: ## build the container image of Mooring without a container engine: make image OUT=mooring.tar
	$(DEV) python hack/images/recipes.py mooring $(if $(OUT),--output $(OUT))

dist: ## all that a release consists of: make dist OUT=dist SIGN=KEY URL=https://...
	MOORING_LOCK=dist ./mooring exec python hack/dist.py $(if $(OUT),--output $(OUT)) $(if $(SIGN),--sign $(SIGN)) $(if $(URL),--url $(URL))

site: ## the documentation as a site, links checked: make site OUT=site
	MOORING_LOCK=site ./mooring exec python hack/site.py $(if $(OUT),--output $(OUT))

specs: ## Kubernetes' own specs on the embedded control plane; PODS=1: those with pods: make specs ONLY=Quota ON=real JOBS=4
	$(DEV) python hack/kubernetes/specs.py $(if $(PODS),--pods) --on $(or $(ON),embedded) -j $(or $(JOBS),4) --only '$(ONLY)'

soak: ## rounds of faults under a writer, not for CI: make soak ROUNDS=20 MINUTES=30 FAULTS=200
	$(DEV) python bench/soak.py --rounds $(or $(ROUNDS),20)
	$(DEV) python bench/faults.py --minutes $(or $(MINUTES),30) --faults $(or $(FAULTS),200)
	$(DEV) python -m bench.cluster_faults --minutes $(or $(MINUTES),30) --faults $(or $(FAULTS),200)
	$(DEV) pytest -q -m soak

soak-mysql: ## half an hour of random faults on three MySQL clusters: make soak-mysql ARGS='--minutes 5 --lanes 1'
	$(DEV) python bench/mysql_faults.py $(ARGS)

campaign: ## every fault plan of the workloads in bench/campaign.py, or one kept plan: make campaign PLAN=file ARGS=...
	$(DEV) python -m bench.campaign $(if $(PLAN),--plan $(PLAN)) $(ARGS)

campaign-real: ## a sample of its plans on real Redis servers: make campaign-real PLANS=2
	$(DEV) python -m bench.campaign_real --plans $(or $(PLANS),2)

bench: ## the embedded plane beside the real one; the console; the runtime beside kopf and controller-runtime (half an hour)
	$(DEV) python -m bench.plane
	$(DEV) python -m bench.console
	$(DEV) python -m bench.runtime $(ARGS)
	$(DEV) python -m bench.runtime.report

api: ## list the public API again, in docs/api.txt
	$(DEV) python -m hack.api

lock: ## resolve the dependencies again (needs uv)
	$(LOCK) --extra console --extra objectstore -o requirements/operators.txt
	$(LOCK) --extra local --extra console --extra objectstore -c requirements/operators.txt -o requirements/run.txt
	$(LOCK) --extra local --extra console --extra objectstore --group dev -c requirements/run.txt -o requirements/dev.txt
	$(LOCK) --group dist -o requirements/dist.txt
	$(LOCK) --extra local --extra console --extra objectstore --group site -c requirements/run.txt -o requirements/site.txt

web: ## build the page of the console into the package (needs npm)
	$(DEV) python hack/web.py
