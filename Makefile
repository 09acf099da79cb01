# Builds the compiler (build/cellc), the runtime (build/libcell.a, .so) and everything around them. In: gcc or
# clang, make, flex, bison; nvcc is used where it is found, and where not, that is said once, when
# build/config.mk is written. Out: everything under $(BUILD) only.

# Variables a user may set: SAN=1 builds with AddressSanitizer and UBSan in build-san/; NOCUDA=1 ignores a
# CUDA toolkit; WERROR= keeps warnings from being errors; PREFIX is where `make install` goes.
SAN ?=
BUILD := $(if $(SAN),build-san,build)
WERROR ?= -Werror
PREFIX ?= /usr/local
CUDA_ARCHS ?= 80 86 89 90
FLEX ?= flex
BISON ?= bison

comma := ,
# As many jobs as there are cores, unless make was told.
ifeq ($(filter -j%,$(MAKEFLAGS)),)
MAKEFLAGS += -j$(shell nproc 2>/dev/null || echo 1)
endif

WARN := -Wall -Wextra $(WERROR)
SANFLAGS := $(if $(SAN),-fsanitize=address$(comma)undefined -fno-omit-frame-pointer -fno-sanitize-recover=undefined)
# Lines of a backtrace; CFLAGS="-g -O0" for a debugger.
CFLAGS ?= -g1 -O2
ALL_CFLAGS = -std=c11 -D_GNU_SOURCE $(WARN) -MMD -MP -fPIC $(SANFLAGS) $(CFLAGS)
# The compiler's own functions are its own in a library too, so that they can be inlined (3 percent of its
# time).
GEN_CFLAGS = $(ALL_CFLAGS) -fno-semantic-interposition

all: runtime ## build the compiler and the runtime (the default)
all: $(BUILD)/cellc $(BUILD)/libladder.a $(BUILD)/libtime.a
	@$(if $(filter-out all,$(MAKECMDGOALS)),:,echo \
	    "built $(BUILD)/cellc. Next: make demo, or $(BUILD)/cellc check specs/gru.cell")

help: ## list the targets
	@grep -hE '^[a-z-]+:.*## ' $(firstword $(MAKEFILE_LIST)) | sort | \
	    awk -F ':.*## ' '{ printf "  make %-14s %s\n", $$1, $$2 }'

# What the machine has, probed once. `make clean` or a change of this file probes again.
QUIET_GOALS := help clean deps dist deb
ifeq ($(MAKECMDGOALS),)
include $(BUILD)/config.mk
else ifneq ($(filter-out $(QUIET_GOALS),$(MAKECMDGOALS)),)
include $(BUILD)/config.mk
endif

NVCC_CANDIDATES := $(shell command -v nvcc) $(if $(CUDA_HOME),$(CUDA_HOME)/bin/nvcc) \
    /usr/local/cuda/bin/nvcc $(wildcard /usr/local/cuda-*/bin/nvcc)

$(BUILD)/config.mk: Makefile
	@mkdir -p $(BUILD); : > $@.tmp; \
	for nvcc in $(if $(NOCUDA),,$(NVCC_CANDIDATES)); do \
	    home=$$(dirname "$$(dirname "$$nvcc")"); \
	    if [ -x "$$nvcc" ] && [ -f "$$home/include/cublas_v2.h" ]; then \
	        echo "NVCC := $$nvcc" >> $@.tmp; echo "CUDA := $$home" >> $@.tmp; echo "nvcc: $$nvcc"; break; \
	    fi; \
	done; \
	grep -q NVCC $@.tmp || echo "nvcc: $(if $(NOCUDA),ignored$(comma) as asked,not found), only the reference backend is built"; \
	mv $@.tmp $@

# ---- flex and bison

MISSING := $(if $(shell command -v $(FLEX)),,flex) $(if $(shell command -v $(BISON)),,bison)
DEPS_IF_MISSING := $(if $(strip $(MISSING)),deps)

.PHONY: all help deps runtime lib lint style check check-quick check-random check-python coverage corpus generated
.PHONY: catalogue site demo wasm wasm-page bench bench-memory bench-plots bench-compile install install-parts uninstall clean
.PHONY: dist deb
deps: ## install flex and bison with apt if they are missing
	@set -e; missing="$(strip $(MISSING))"; [ -n "$$missing" ] || exit 0; \
	if [ "$$(id -u)" = 0 ]; then sudo=; else sudo="sudo -n"; fi; \
	if command -v apt-get >/dev/null && { [ -z "$$sudo" ] || $$sudo true 2>/dev/null; }; then \
	    echo "installing $$missing"; \
	    $$sudo apt-get install -y -qq $$missing >/dev/null 2>&1 || \
	        { $$sudo apt-get update -qq && $$sudo apt-get install -y -qq $$missing >/dev/null; }; \
	else \
	    echo "missing: $$missing. Install it, then run make again:"; echo "    sudo apt-get install -y $$missing"; exit 1; \
	fi

# ---- the compiler

GEN_SOURCES := $(wildcard gen/*.c gen/*/*.c gen/*/*/*.c)
GEN_GRAMMAR := $(BUILD)/gen/front/parse.o $(BUILD)/gen/front/lex.o
GEN_OBJECTS := $(patsubst gen/%.c,$(BUILD)/gen/%.o,$(filter-out gen/main.c,$(GEN_SOURCES))) $(GEN_GRAMMAR)

$(BUILD)/cellc: $(BUILD)/gen/main.o $(BUILD)/libcellc.a
	$(CC) $(SANFLAGS) $(COVER) $(LDFLAGS) -rdynamic -o $@.tmp $^ -lm -ldl -lpthread && mv $@.tmp $@

$(BUILD)/libcellc.a: $(GEN_OBJECTS)
	@rm -f $@; ar rcs $@ $^

$(BUILD)/gen/front/parse.c $(BUILD)/gen/front/parse.h &: gen/front/parse.y | $(DEPS_IF_MISSING)
	@mkdir -p $(@D)
	$(BISON) -Wall -Werror --header=$(BUILD)/gen/front/parse.h -o $(BUILD)/gen/front/parse.c $<

$(BUILD)/gen/front/lex.c $(BUILD)/gen/front/lex.h &: gen/front/lex.l | $(DEPS_IF_MISSING)
	@mkdir -p $(@D)
	$(FLEX) --header-file=$(BUILD)/gen/front/lex.h -o $(BUILD)/gen/front/lex.c $<

GRAMMAR_HEADERS := $(BUILD)/gen/front/parse.h $(BUILD)/gen/front/lex.h

# Skeletons of kernels, as tables of C.
TEMPLATE_HEADERS := $(patsubst %.cuh,$(BUILD)/gen/%.h,$(wildcard templates/*.cuh))
$(TEMPLATE_HEADERS): $(BUILD)/gen/%.h: %.cuh templates/templates.awk
	@mkdir -p $(@D)
	@awk -f templates/templates.awk $< > $@.tmp && mv $@.tmp $@ || { rm -f $@.tmp; exit 1; }

$(BUILD)/gen/%.o: gen/%.c | $(GRAMMAR_HEADERS) $(TEMPLATE_HEADERS)
	@mkdir -p $(@D)
	$(CC) $(GEN_CFLAGS) $(COVER) -Igen -I$(BUILD)/gen -c -o $@ $<

# flex's skeleton has functions nobody calls and compares signed with unsigned.
$(BUILD)/gen/front/lex.o $(BUILD)/gen/front/parse.o: $(BUILD)/gen/%.o: $(BUILD)/gen/%.c | $(GRAMMAR_HEADERS)
	$(CC) $(GEN_CFLAGS) -Wno-unused-function -Wno-sign-compare -Wno-unused-parameter \
	    -Igen -I$(BUILD)/gen -c -o $@ $<

# ---- the runtime

RT_APART := runtime/backend_cuda.c runtime/cpu/product_level.c
RT_SOURCES := $(filter-out $(RT_APART),$(wildcard runtime/*.c runtime/cpu/*.c))
RT_OBJECTS := $(RT_SOURCES:%.c=$(BUILD)/%.o)
# Products for each level of the architecture.
CPU_LEVELS := $(if $(filter x86_64,$(shell uname -m)),0 1 2 3,0)
RT_OBJECTS += $(CPU_LEVELS:%=$(BUILD)/runtime/cpu/product_%.o)
RT_CFLAGS := -Iruntime $(if $(CUDA),-isystem $(CUDA)/include)
# The archive needs neither CUDA nor a BLAS. The backend with the CUDA runtime is an object beside it, for
# programs that run kernels of nvcc's; `cellc build` compiles it with the toolkit that it finds when it runs.
CUDA_BACKEND := $(if $(CUDA),$(BUILD)/runtime/backend_cuda.o)
RT_LIBS := -lm -ldl -lpthread
CUDA_LIBS := $(if $(CUDA),-L$(CUDA)/lib64 -Wl$(comma)-rpath$(comma)$(CUDA)/lib64 -lcublas -lcudart)

# The ladder: what `cellc selftest` and tests/ladder link with an instance.
LADDER_OBJECTS := $(patsubst %.c,$(BUILD)/%.o,$(wildcard ladder/*.c))

$(BUILD)/ladder/%.o: ladder/%.c
	@mkdir -p $(@D)
	$(CC) $(ALL_CFLAGS) -Iruntime -c -o $@ $<

$(BUILD)/libladder.a: $(LADDER_OBJECTS)
	@rm -f $@; ar rcs $@ $^

# What `cellc tune` links with each candidate, beside bench/time.c, which wants the toolkit's headers.
TIME_OBJECTS := $(patsubst %,$(BUILD)/bench/%.o,call results tune footprint)

$(BUILD)/bench/%.o: bench/%.c
	@mkdir -p $(@D)
	$(CC) $(ALL_CFLAGS) $(RT_CFLAGS) -c -o $@ $<

$(BUILD)/libtime.a: $(TIME_OBJECTS) $(BUILD)/config.mk
	@rm -f $@; ar rcs $@ $(TIME_OBJECTS)

runtime: $(BUILD)/libcell.a $(BUILD)/libcell.so $(BUILD)/libcell.flags ## build the runtime library alone

$(BUILD)/runtime/%.o: runtime/%.c
	@mkdir -p $(@D)
	$(CC) $(ALL_CFLAGS) $(RT_CFLAGS) -c -o $@ $<

# As in gen/commands/build.c: x86-64-v2, v3 and v4 in words that older compilers know.
CPU_ARCH_1 := -mcx16 -msahf -mpopcnt -msse3 -mssse3 -msse4.1 -msse4.2
CPU_ARCH_2 := $(CPU_ARCH_1) -mavx -mavx2 -mbmi -mbmi2 -mf16c -mfma -mlzcnt -mmovbe
CPU_ARCH_3 := $(CPU_ARCH_2) -mavx512f -mavx512bw -mavx512cd -mavx512dq -mavx512vl -mprefer-vector-width=512
$(CPU_LEVELS:%=$(BUILD)/runtime/cpu/product_%.o): $(BUILD)/runtime/cpu/product_%.o: runtime/cpu/product_level.c
	@mkdir -p $(@D)
	$(CC) $(ALL_CFLAGS) -Iruntime -O3 -ffp-contract=fast -DCELL_CPU_LEVEL=$* $(CPU_ARCH_$*) -c -o $@ $<

$(BUILD)/libcell.a: $(RT_OBJECTS) $(BUILD)/config.mk
	@rm -f $@; ar rcs $@ $(RT_OBJECTS)

# Programs ask for the library by the number of its interface.
VERSION := $(shell sed -n 's/^\#define CELLC_VERSION "\(.*\)"/\1/p' gen/main.c 2>/dev/null)
SONAME := libcell.so.0

$(BUILD)/libcell.so: $(RT_OBJECTS) $(CUDA_BACKEND)
	$(CC) $(SANFLAGS) -shared -Wl,-soname,$(SONAME) -o $@ $^ $(CUDA_LIBS) $(RT_LIBS)
	ln -sf libcell.so $(BUILD)/$(SONAME)

# The same for other machines than this one, as wheels and packages want it: without CUDA, and nvcc is looked
# for.
RUNTIME_HERE := $(BUILD)$(if $(PORTABLE),/portable)
$(BUILD)/portable/libcell.so: $(RT_OBJECTS)
	@mkdir -p $(@D)
	$(CC) $(SANFLAGS) -shared -Wl,-soname,$(SONAME) -o $@ $^ $(RT_LIBS)
$(BUILD)/portable/libcell.flags: $(BUILD)/config.mk
	@mkdir -p $(@D)
	@printf 'libs %s\nnvcc \n' "$(strip $(SANFLAGS) $(RT_LIBS))" > $@

# What `cellc build` hands to the linker beside libcell.a, and where nvcc was; "-": none is wanted. Where
# there was none, or it is gone, cellc looks for one when it runs.
$(BUILD)/libcell.flags: $(BUILD)/config.mk
	@printf 'libs %s\nnvcc %s\n' "$(strip $(SANFLAGS) $(RT_LIBS))" "$(or $(NVCC),$(if $(NOCUDA),-))" > $@

lint: ## look over the sources: white space, lengths of lines, clang-format, ruff, shellcheck
	@bash scripts/lint.sh

style: ## what clang-format would change in the lines of C that differ from main
	@command -v git-clang-format >/dev/null || { echo "apt-get install clang-format"; exit 1; }
	@git-clang-format --diff "$$(git merge-base HEAD origin/main 2>/dev/null || git merge-base HEAD main)" -- gen runtime ladder; true

# ---- the demonstration: examples/bytelm with a generated cell

DEMO := $(BUILD)/demo
DEMO_CELL := specs/gru.cell
DEMO_SECONDS ?= 25
# Kernels take nvcc a while, so they are compiled only for the GPU that is there to run them.
DEMO_DEVICE := $(if $(shell nvidia-smi -L 2>/dev/null),--archs native,--no-cuda)

demo: all ## compile a GRU, explain it, check its gradients, train a byte-level language model with it, sample
	@mkdir -p $(DEMO)
	$(BUILD)/cellc build $(DEMO_CELL) $(DEMO_DEVICE) --cpu native -o $(DEMO)
	$(BUILD)/cellc explain $(DEMO_CELL)
	$(BUILD)/cellc check $(DEMO_CELL)
	$(CC) -std=c11 -D_GNU_SOURCE $(WARN) -O2 $(SANFLAGS) -I$(DEMO) -Iruntime -o $(DEMO)/bytelm examples/bytelm/*.c \
	    -L$(DEMO) -Wl,-rpath,'$$ORIGIN' -lgru -lm -lpthread
	OPENBLAS_NUM_THREADS=1 $(DEMO)/bytelm -s $(DEMO_SECONDS) examples/bytelm/opticks.txt

# ---- WebAssembly

wasm: all ## compile cells for WebAssembly with clang and check them under Node and in Chromium (ONLY=regex)
	@WASM=1 BUILD=$(BUILD) ONLY="$(ONLY)" bash tests/wasm/run.sh

WASM_PAGE := $(BUILD)/wasm-page
WASM_SECONDS ?= 180
wasm-page: all ## train a language model under Node and make a web page that runs it: build/wasm-page (WASM_SECONDS=180)
	$(BUILD)/cellc build examples/wasm/charlm.cell --target wasm -o $(WASM_PAGE)
	node examples/wasm/train.mjs $(WASM_PAGE) examples/bytelm/opticks.txt $(WASM_SECONDS)
	cp examples/wasm/*.mjs examples/wasm/index.html $(WASM_PAGE)
	@echo "the page: python3 -m http.server -d $(WASM_PAGE), then http://localhost:8000"

# ---- benchmarks: need a GPU and nvcc, and say so

bench: all ## measure on the GPU: a table, and JSON in build/bench/results.json (ONLY=regex on the workloads' names)
	@CELLC=$(BUILD)/cellc ONLY="$(ONLY)" bash bench/prepare.sh $(BUILD)/bench
	@NVCC="$(NVCC)" ONLY="$(ONLY)" bash bench/run.sh $(BUILD)/bench

bench-memory: all ## the memory that training each workload needs, without a GPU: a table (ONLY=regex, BUFFERS=1: each buffer)
	@CELLC=$(BUILD)/cellc ONLY="$(ONLY)" bash bench/prepare.sh $(BUILD)/bench
	@BUILD=$(BUILD) ONLY="$(ONLY)" BUFFERS="$(BUFFERS)" bash bench/memory.sh $(BUILD)/bench

bench-plots: all ## scaling curves over B, T, N, H: SVG in build/bench/curves/plots or PLOTS, and the cliffs (measured, or of bench/results)
	@CELLC=$(BUILD)/cellc NVCC="$(NVCC)" PLOTS="$(PLOTS)" bash bench/plots.sh $(BUILD)/bench/curves

bench-compile: all ## what compiling each spec costs: cellc, nvcc for ARCHS="90 80" (SPECS="e79 lstm" of specs/; minutes)
	@CELLC=$(BUILD)/cellc NVCC="$(NVCC)" OUT=$(BUILD)/compile_time.json python3 bench/compile_time.py $(SPECS)

# ---- one library of several instances

CELLS ?= e79:N=32,bias=input e79:N=64 e88
lib: all ## build CELLS="e79:N=32,bias=input e88 ..." into build/lib/libcells.so, for CUDA_ARCHS="80 90" (or all) where there is nvcc
	$(BUILD)/cellc build $(CELLS) --name cells --archs "$(CUDA_ARCHS)" $(if $(JOBS),--jobs $(JOBS)) -o $(BUILD)/lib

corpus: all ## show what this compiler makes otherwise than the texts of tests/corpus/hashes (ACCEPT=1: take it as right; ONLY=regex)
	@SHOW=$(or $(SHOW),1000) ONLY="$(ONLY)" ACCEPT="$(ACCEPT)" CELLC=$(BUILD)/cellc bash tests/corpus/run.sh

generated: all ## write generated/ again, what is kept in git of e79 and lstm
	$(BUILD)/cellc emit specs/e79.cell -o generated
	$(BUILD)/cellc emit specs/lstm.cell -o generated

catalogue: $(BUILD)/cellc ## write docs/cells.md, the catalogue of specs/, and a page per cell in docs/cells/
	CELLC="$$PWD/$(BUILD)/cellc" bash docs/cells.sh > docs/cells.md.new && mv docs/cells.md.new docs/cells.md
	@rm -rf docs/cells; command -v dot >/dev/null || echo "no pictures without Graphviz: apt-get install graphviz"
	@for spec in $(filter-out specs/std.cell,$(wildcard specs/*.cell)); do \
	    $(BUILD)/cellc doc $$spec -o docs/cells >/dev/null 2>$(BUILD)/doc.log || { cat $(BUILD)/doc.log; exit 1; }; \
	done; rm -f docs/cells/*.dot; echo "docs/cells: $$(ls docs/cells/*.md | wc -l) pages"

# Its environment and its pages' sources stay in build/site-work, so that a second run is short.
site: $(BUILD)/cellc ## write the documentation as static HTML: build/site/index.html (installs site/requirements.txt into build)
	@CELLC="$$PWD/$(BUILD)/cellc" WORK="$$PWD/$(BUILD)/site-work" OUT="$$PWD/$(BUILD)/site" bash site/build.sh

# ---- tests: tests/NAME/run.sh where there is one, else every tests/NAME/test_*.c is a program

TEST_SCRIPTS := $(wildcard tests/*/run.sh)
TEST_SOURCES := $(filter-out $(addsuffix %,$(dir $(TEST_SCRIPTS))),$(wildcard tests/*/test_*.c))
TEST_PROGRAMS := $(patsubst %.c,$(BUILD)/%,$(TEST_SOURCES))

# What else a program's directory holds is linked with it.
HELPERS = $(filter-out $(wildcard $(dir $<)test_*.c),$(wildcard $(dir $<)*.c))

$(BUILD)/tests/runtime/%: tests/runtime/%.c $(BUILD)/libcell.a $(CUDA_BACKEND)
	@mkdir -p $(@D)
	$(CC) $(ALL_CFLAGS) $(RT_CFLAGS) -Itests/runtime -o $@ $< $(HELPERS) $(CUDA_BACKEND) $(BUILD)/libcell.a \
	    $(CUDA_LIBS) $(RT_LIBS) -lpthread

$(BUILD)/tests/%: tests/%.c $(BUILD)/libcellc.a $(BUILD)/libcell.a
	@mkdir -p $(@D)
	$(CC) $(ALL_CFLAGS) $(COVER) -Wno-unused-parameter -Igen -I$(BUILD)/gen $(RT_CFLAGS) -I$(dir $<) -o $@ $< $(HELPERS) \
	    -Wl,--start-group $(BUILD)/libcellc.a $(BUILD)/libcell.a -Wl,--end-group $(RT_LIBS) -ldl -lpthread

# What finds most mistakes for its time: suites of seconds, and one instance of each schedule.
QUICK := eval fmt ops parse runtime vectors fuzz diag layers settings meaning generated ladder
QUICK_LADDER := gru_steps_f32 lstm_gemm_f32 hgrn_scan_f32 layernorm_map_f32 e79_tile_f32_N_6_bias_input \
    causal_attention_window_f32_N_5_V_7_G_2
ifneq ($(filter check-quick,$(MAKECMDGOALS)),)
TESTS := $(QUICK:%=tests/%/)
export ONLY := ^($(subst $(eval ) ,|,$(strip $(QUICK_LADDER))))$$
endif

# TESTS="driver diag" runs those that have "driver" or "diag" in their path.
ALL_CHECKS := $(TEST_PROGRAMS) $(TEST_SCRIPTS)
CHECKS := $(if $(TESTS),$(foreach t,$(ALL_CHECKS),$(if $(strip $(foreach w,$(TESTS),$(findstring $(w),$(t)))),$(t))),$(ALL_CHECKS))

NO_SUCH_TESTS := $(strip $(foreach w,$(TESTS),$(if $(strip $(foreach t,$(ALL_CHECKS),$(findstring $(w),$(t)))),,$(w))))

check: all $(filter $(BUILD)/%,$(CHECKS)) ## run every test (TESTS=driver: one suite); the last line sums them up
	@[ -z "$(NO_SUCH_TESTS)" ] || { echo "no test has '$(firstword $(NO_SUCH_TESTS))' in its path; tests/ has:" \
	    $(sort $(foreach t,$(ALL_CHECKS),$(word 2,$(subst /, ,$(t:$(BUILD)/%=%))))) >&2; exit 1; }
	@BUILD=$(BUILD) CC="$(CC)" NVCC="$(NVCC)" SAN="$(SAN)" COVER="$(COVER)" tests/run.sh $(CHECKS)

check-quick: check ## the tests of the everyday loop: under two minutes on two cores (tests/README.md)

# Its own build, since gcov's counters slow every run; COVERED says which suites count.
COVERED ?= parse fmt diag ir explain ops emit eval meaning specs constructs docs driver
coverage: ## what COVERED="specs ir ..." reach: lines of the compiler, operators of the table
	@$(MAKE) BUILD=build-coverage COVER=--coverage CFLAGS="-g -O1" all >/dev/null
	@$(MAKE) BUILD=build-coverage COVER=--coverage CFLAGS="-g -O1" check TESTS="$(COVERED)"
	@bash scripts/coverage.sh build-coverage

# One random cell takes the whole ladder; a failing one is shrunk and kept in tests/random/failed.
N ?= 100
SEED ?=
check-random: all ## check N random cells (N=100; SEED=... to repeat a run)
	@CELLC=$(BUILD)/cellc CC="$(CC)" N=$(N) SEED=$(SEED) bash tests/random/run.sh

VENV ?=
# Needs PyTorch, which may be a long download, so it is not part of check.
check-python: all ## test the Python package in a virtual environment with PyTorch (VENV=dir, ONLY=words for pytest -k)
	@BUILD=$(BUILD) VENV="$(VENV)" ONLY="$(ONLY)" bash tests/python/check.sh

# By the shell's environment, so that the path may have any characters.
install install-parts uninstall: export INSTALL_TO := $(DESTDIR)$(PREFIX)
install: install-parts ## install to PREFIX (/usr/local); DESTDIR is respected; PORTABLE=1: for other machines as well
	install -d "$$INSTALL_TO"/lib/pkgconfig "$$INSTALL_TO"/lib/cmake/cellc "$$INSTALL_TO"/share/doc/cellc \
	    "$$INSTALL_TO"/share/cellc/examples/bytelm
	sed 's/@VERSION@/$(VERSION)/' packaging/cellc.pc.in > "$$INSTALL_TO"/lib/pkgconfig/cellc.pc
	sed 's/@VERSION@/$(VERSION)/' packaging/cellc-config-version.cmake.in \
	    > "$$INSTALL_TO"/lib/cmake/cellc/cellc-config-version.cmake
	install -m 644 packaging/cellc-config.cmake "$$INSTALL_TO"/lib/cmake/cellc
	install -m 644 LICENSE README.md $(wildcard docs/*.md) "$$INSTALL_TO"/share/doc/cellc
	install -m 644 $(wildcard examples/bytelm/*) "$$INSTALL_TO"/share/cellc/examples/bytelm
	cp -R editors "$$INSTALL_TO"/share/cellc/

# What cellc itself reads.
install-parts: all $(if $(PORTABLE),$(BUILD)/portable/libcell.so $(BUILD)/portable/libcell.flags)
	install -d "$$INSTALL_TO"/bin "$$INSTALL_TO"/lib/cellc "$$INSTALL_TO"/share/cellc/specs \
	    "$$INSTALL_TO"/share/cellc/bench "$$INSTALL_TO"/share/cellc/runtime "$$INSTALL_TO"/share/cellc/emulator \
	    "$$INSTALL_TO"/share/man/man1 "$$INSTALL_TO"/include/cellc/device \
	    "$$INSTALL_TO"/include/cellc/cpu "$$INSTALL_TO"/share/cellc/runtime/cpu "$$INSTALL_TO"/share/cellc/runtime/wasm
	install -m 755 $(BUILD)/cellc "$$INSTALL_TO"/bin
	install -m 644 $(BUILD)/libcell.a $(BUILD)/libladder.a $(BUILD)/libtime.a $(RUNTIME_HERE)/libcell.flags \
	    "$$INSTALL_TO"/lib/cellc
	install -m 644 $(RUNTIME_HERE)/libcell.so "$$INSTALL_TO"/lib/cellc/libcell.so.$(VERSION)
	ln -sf libcell.so.$(VERSION) "$$INSTALL_TO"/lib/cellc/$(SONAME)
	ln -sf $(SONAME) "$$INSTALL_TO"/lib/cellc/libcell.so
	install -m 644 runtime/*.h "$$INSTALL_TO"/include/cellc
	install -m 644 runtime/device/* "$$INSTALL_TO"/include/cellc/device
	install -m 644 runtime/cpu/cell_cpu*.h "$$INSTALL_TO"/include/cellc/cpu
	install -m 644 runtime/*.c "$$INSTALL_TO"/share/cellc/runtime
	install -m 644 $(filter-out runtime/cpu/cell_%,$(wildcard runtime/cpu/*)) "$$INSTALL_TO"/share/cellc/runtime/cpu
	install -m 644 runtime/wasm/* "$$INSTALL_TO"/share/cellc/runtime/wasm
	install -m 644 bench/time.c bench/call.h "$$INSTALL_TO"/share/cellc/bench
	install -m 644 specs/*.cell "$$INSTALL_TO"/share/cellc/specs
	install -m 644 $(wildcard tests/emulator/cell_emu*) "$$INSTALL_TO"/share/cellc/emulator
	install -m 644 man/cellc.1 "$$INSTALL_TO"/share/man/man1

uninstall: ## remove what install brought to PREFIX; folders that others use as well stay
	rm -f "$$INSTALL_TO"/bin/cellc "$$INSTALL_TO"/share/man/man1/cellc.1 "$$INSTALL_TO"/lib/pkgconfig/cellc.pc
	rm -rf "$$INSTALL_TO"/lib/cellc "$$INSTALL_TO"/lib/cmake/cellc "$$INSTALL_TO"/include/cellc \
	    "$$INSTALL_TO"/share/cellc "$$INSTALL_TO"/share/doc/cellc

dist: ## the release as a source archive of what is committed: build/dist/cellc-VERSION.tar.xz
	@bash scripts/dist.sh $(BUILD)/dist

deb: ## a Debian package of what is committed, by debhelper: build/deb/cellc_VERSION-1_ARCH.deb
	@bash scripts/deb.sh $(BUILD)/deb

clean: ## remove what was built
	rm -rf build build-san

-include $(wildcard $(BUILD)/gen/*.d $(BUILD)/gen/*/*.d $(BUILD)/gen/*/*/*.d $(BUILD)/tests/*/*.d)
-include $(wildcard $(BUILD)/runtime/*.d $(BUILD)/runtime/cpu/*.d $(BUILD)/ladder/*.d $(BUILD)/bench/*.d)
