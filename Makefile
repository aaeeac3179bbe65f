# SPDX-License-Identifier: Apache-2.0
# berth: one non-recursive Makefile. A folder is a list: adding a file adds it to the build.

# ---- what to build ------------------------------------------------------------------------------

# As many jobs as processors; -j on the command line is heard instead.
ifeq ($(MAKELEVEL),0)
MAKEFLAGS += -j$(shell nproc)
endif

# A target that is a flavour, alone, works in that flavour's folder from the first line: what is switched
# off beside it leaves the release as it was.
goal_flavour = $(if $(filter-out asan tsan coverage,$(MAKECMDGOALS)),,$(firstword $(MAKECMDGOALS)))
MODE ?= $(or $(goal_flavour),release)
B := build/$(MODE)
.DEFAULT_GOAL := all
.SECONDARY:
.DELETE_ON_ERROR:
ifneq ($(filter run test bench asan tsan coverage lint,$(MAKECMDGOALS)),)
ifeq ($(findstring n,$(firstword -$(MAKEFLAGS))),)
$(if $(filter 0,$(shell tools/bootstrap >&2; echo $$?)),,$(error the packages named above are missing))
endif
endif

# The comma, which a function call would take for its own.
, := ,
names = $(sort $(notdir $(patsubst %/,%,$(wildcard $(addsuffix /,$1)))))
sources_in = $(sort $(wildcard $(foreach d,$1,$d/*.c $d/*/*.c)))
# A plugin's folder `fused` is its op library: a second shared object beside the first.
fused_in = $(sort $(wildcard $1/fused/*.c))
host := $(filter-out host/main.c,$(call sources_in,host))
core := $(call names,plugins/core-*)
shared := $(call names,plugins/platform-* plugins/model-* plugins/quant-* plugins/pass-*)
builtin := $(call names,$(addprefix plugins/platform-,cpu cuda hip opencl))
fakes := $(call names,tests/fakes/*)
# The suites with the longest tests first: what is left for one core at the end is short.
SUITES ?= ops golden integration conformance passes unit
tests := $(basename $(foreach s,$(SUITES),$(sort $(wildcard tests/$s/*_test.c))))

# ---- how ----------------------------------------------------------------------------------------

include tools/modes.mk
PREFIX ?= /usr/local
# Why no format-truncation: a text that is cut at its stated size is meant to be.
WARNINGS := -Wall -Wextra -Wno-format-truncation -Wshadow -Wstrict-prototypes -Wmissing-prototypes -Wvla \
            $(if $(filter 1,$(WERROR)),-Werror)
COMMON := $(WARNINGS) -fvisibility=hidden -fPIC -pthread -fno-math-errno $(FLAVOUR)
HOST_LIBS := -lyaml -ljansson -lpcre2-8 -lutf8proc -ldl -lm
# Each tree sees only its own headers: a plugin that includes a host header does not compile.
FLAGS_kernels := -std=c11 $(COMMON) $(CONTENT) -I plugin-api -I kernels
FLAGS_plugins := -D_POSIX_C_SOURCE=200809L $(FLAGS_kernels)
FLAGS_host := -std=c17 -D_GNU_SOURCE -DBERTH_VERSION='"$(file <VERSION)"' $(COMMON) -I plugin-api -I host
FLAGS_tests := $(FLAGS_host) -DTEST_BUILD='"$(B)"' -DTEST_MODE='"$(MODE)"' -DTEST_LIBS='"$(HOST_LIBS)"' -I . -I kernels -I tests
FLAGS_build := $(FLAGS_tests)
FLAGS_tools := $(FLAGS_host) -I kernels -I tools
tree = $(if $(filter tests/fakes/%,$1),plugins,$(firstword $(subst /, ,$1)))
place = $(word 2,$(subst /, ,$1))
flags = $(FLAGS_$(call tree,$1)) $($(call place,$1)_CFLAGS) $(platform-$(call place,$1)_CFLAGS)
say = $(if $(V),,@printf '  %-4s %s\n' $1 $@;)

# ---- what this machine has ----------------------------------------------------------------------

include tools/detect.mk
core-ops_KERNELS := kernels/native/*.c
-include $(sort $(wildcard plugins/*/plugin.mk tests/fakes/*/plugin.mk))
lacks = $(strip $(foreach r,$($1_REQUIRES),$(if $(filter yes,$($r_FOUND)),,$r)))
left_out := $(foreach p,$(shared),$(if $(call lacks,$p),$p))
plugins := $(filter-out $(left_out),$(shared))
sets := $(sort $(foreach p,$(plugins),$($p_SETS)))

# ---- rules --------------------------------------------------------------------------------------

# remember FILE,TEXT rewrites FILE only when its text changes, so that rules can depend on it. Why
# strip: make 4.3 keeps the last newline of a file longer than its buffer.
same = $(and $(findstring x$1x,x$2x),$(findstring x$2x,x$1x))
remember = $(if $(and $(wildcard $1),$(call same,$(strip $2),$(strip $(file <$1)))),,$(shell mkdir -p $(dir $1))$(file >$1,$2))
objects = $(addprefix $(B)/obj/,$(addsuffix .o,$(basename $1)))

$(call remember,$(B)/flags,$(CC) $(FLAGS_tests) $(FLAGS_plugins) $(CFLAGS) $(LDFLAGS) $(foreach s,$(sets),$(SET_$s)))
$(call remember,$(B)/nvcc_flags,$(NVCC) $(NVCC_FLAGS))
$(call remember,$(B)/hipcc_flags,$(HIPCC) $(HIPCC_FLAGS))
compile = $(CC) $(call flags,$<) -MMD -MP $(CFLAGS) -c $< -o $@
$(B)/obj/%.o: %.c $(B)/flags
	@mkdir -p $(@D)
	$(call say,CC)$(compile)
$(B)/static/%.o: plugins/%.c $(B)/flags
	@mkdir -p $(@D)
	$(call say,CC)$(compile) -DBERTH_STATIC=$(subst -,_,$(call place,$<))
# A kernel of an instruction set has the set's name behind its own.
define set_rule
$(B)/$1/%.o: %.c $(B)/flags
	@mkdir -p $$(@D)
	$$(call say,CC)$$(compile) $(SET_$1) -Dberth_kernel_$$(*F)=berth_kernel_$$(*F)_$1
endef
$(foreach s,$(sets),$(eval $(call set_rule,$s)))
$(B)/obj/%.o: %.cu $(B)/nvcc_flags
	@mkdir -p $(@D)
	$(call say,NV)$(NVCC) $(NVCC_FLAGS) -I plugin-api -I kernels -MMD -MP -c $< -o $@
# What hipcc makes of a kernel lies beside what nvcc does.
$(B)/hip/%.o: %.cu $(B)/hipcc_flags
	@mkdir -p $(@D)
	$(call say,HIP)$(HIPCC) $(HIPCC_FLAGS) -I plugin-api -I kernels -MMD -MP -c $< -o $@

# table KIND,ENTRIES: gen/KIND.c, a folder as a C table, made again when a file comes or goes.
define table
$(call remember,$(B)/gen/$1.list,$2)
$(B)/gen/$1.c: $(B)/gen/$1.list tools/catalog
	$$(call say,GEN)tools/catalog $1 $2 >$$@
endef
# content FOLDER: own files, kernels, and the table of what the folder lists. Of several kernels of
# one file name the last folder's counts; files in sub-folders are helpers, not entries. A folder
# with sets has its kernels, and a table of them, once for each; one with a folder of its own for
# what its compiler makes has them there.
kernel_files = $(foreach k,$($1_KERNELS),$(sort $(wildcard $k)))
kernels = $(foreach f,$(call kernel_files,$1),$(if $(filter $f,$(lastword \
          $(filter %/$(notdir $f),$(call kernel_files,$1)))),$f))
helpers = $(sort $(wildcard $(foreach k,$($1_KERNELS),$(dir $k)*/$(notdir $k))))
kernel_kind = $(subst -,_,$(patsubst platform-%,%,$1))$(addprefix _,$2)_kernels
kind = $(if $(filter core-ops,$1),native_ops,$(if $(filter core-%,$1),$(subst -,_,$1),$(if \
       $($1_SETS),,$(if $($1_KERNELS),$(call kernel_kind,$1)))))
entries = $(or $(call kernels,$1),$(if $(filter core-%,$1),$(filter-out %/plugin.c,$(wildcard plugins/$1/*.c))))
kernel_objects = $(patsubst $(B)/obj/%,$(B)/$(or $($1_COMPILER),obj)/%,$(call objects,$2))
set_objects = $(patsubst %.c,$(B)/$2/%.o,$(call kernels,$1)) $(call objects,$(B)/gen/$(call kernel_kind,$1,$2).c)
define content
objects_$1 := $(call objects,$(filter-out $(call fused_in,plugins/$1),$(call sources_in,plugins/$1))) \
              $(call kernel_objects,$1,$(if $($1_SETS),,$(call kernels,$1)) $(call helpers,$1)) \
              $(if $(call kind,$1),$(call objects,$(B)/gen/$(call kind,$1).c)) \
              $(foreach s,$($1_SETS),$(call set_objects,$1,$s))
$(if $(call kind,$1),$(eval $(call table,$(call kind,$1),$(sort $(call entries,$1)))))
$(foreach s,$($1_SETS),$(eval $(call table,$(call kernel_kind,$1,$s),$(patsubst %.c,%_$s.c,$(call kernels,$1)))))
endef
$(foreach p,$(core) $(plugins),$(eval $(call content,$p)))
$(foreach p,$(fakes),$(eval objects_$p := $(call objects,$(call sources_in,tests/fakes/$p))))
fused := $(foreach p,$(plugins),$(if $(call fused_in,plugins/$p),$p))
$(foreach p,$(fused),$(eval objects_$p-fused := $(call objects,$(call fused_in,plugins/$p))))

# library FOLDER,FROM,TO: one shared object that exports one symbol, its manifest beside it.
define library_rules
$(call remember,$(B)/names/$1,$(objects_$1))
$3/libberth-$1.so: $(objects_$1) $(B)/names/$1 tools/plugin.map
	@mkdir -p $$(@D)
	$$(call say,LD)$(CC) -shared -pthread $(FLAVOUR) -Wl,--version-script=tools/plugin.map -Wl,-z,defs \
	    $(objects_$1) $(LDFLAGS) $($1_LIBS) -lm -o $$@
$(addprefix $3/,$(notdir $(wildcard $2/*.yaml))): $3/%: $2/%
	@mkdir -p $$(@D)
	$$(call say,COPY)cp $$< $$@
made_$1 := $(addprefix $3/,libberth-$1.so $(notdir $(wildcard $2/*.yaml)))
endef
$(foreach p,$(plugins),$(eval $(call library_rules,$p,plugins/$p,$(B)/plugins)))
$(foreach p,$(fused),$(eval $(call library_rules,$p-fused,plugins/$p/fused,$(B)/plugins)))
$(foreach p,$(core),$(eval $(call library_rules,$p,plugins/$p,$(B)/tests/core)))
$(foreach p,$(fakes),$(eval $(call library_rules,$p,tests/fakes/$p,$(B)/tests/plugins/$p)))
product := $(B)/plugins/builtin.list $(foreach p,$(plugins) $(addsuffix -fused,$(fused)),$(made_$p))
test_plugins := $(foreach p,$(core) $(fakes),$(made_$p))
# Why: a plugin that is no longer built must not be found by the next run.
$(shell rm -f $(filter-out $(product),$(wildcard $(B)/plugins/*)))

ids := $(shell sed -n 's/^id: *//p' /dev/null $(foreach p,$(builtin),$(wildcard plugins/$p/*.plugin.yaml)))
$(eval $(call table,builtin_ids,$(ids)))
$(eval $(call table,core_plugins,$(core)))
$(B)/plugins/builtin.list: $(B)/gen/builtin_ids.list
	@mkdir -p $(@D)
	$(call say,GEN)printf '%s\n' $(ids) >$@

archived := $(call objects,$(host) $(B)/gen/core_plugins.c $(B)/gen/builtin_ids.c) \
            $(foreach p,$(core),$(patsubst $(B)/obj/plugins/%/plugin.o,$(B)/static/%/plugin.o,$(objects_$p)))
$(call remember,$(B)/names/libberth.a,$(archived))
$(B)/libberth.a: $(archived) $(B)/names/libberth.a
	$(call say,AR)rm -f $@ && ar rcsT $@ $(archived)
link = $(CC) -pthread $(FLAVOUR) $(filter %.o %.a,$^) $(LDFLAGS) $1 $(HOST_LIBS) -o $@
$(B)/berth: $(B)/obj/host/main.o $(B)/libberth.a
	$(call say,LD)$(link)
# tools/quantize: the host's modules without its program, and arithmetic.
quantizer_CFLAGS := $(CONTENT)
$(B)/quantize: $(call objects,$(wildcard tools/quantizer/*.c)) $(B)/libberth.a
	$(call say,LD)$(link)
build/berth: build/release/berth
	@ln -sfn release/berth $@

support := $(call objects,$(filter-out $(if $(findstring hooks,$(ALLOC_COUNTER)),%/alloc_replace.c,%/alloc_hooks.c),$(wildcard tests/support/*.c)))
$(B)/gen/tests/%.c: tests/%.c tools/test-list
	@mkdir -p $(@D)
	@tools/test-list $< >$@
$(B)/tests/%: $(B)/obj/tests/%.o $(B)/obj/$(B)/gen/tests/%.o $(support) $(B)/libberth.a
	@mkdir -p $(@D)
	$(call say,LD)$(call link,-lcmocka)
# Each of tests/bench is a program: platform-cpu beside what it is measured by.
$(B)/tests/bench/%: $(B)/obj/tests/bench/%.o
	@mkdir -p $(@D)
	$(call say,LD)$(CC) -pthread $(FLAVOUR) $< $(LDFLAGS) $(ONEDNN_LIBS) -fopenmp -ldl -lm -o $@
# What tools/bench-gpu carries to a machine with a GPU: kernels alone, and whole models.
gpu_kernels := $(filter $(B)/obj/kernels/%,$(objects_platform-cuda))
$(addprefix $(B)/tests/gpu/,kernels codes fused gated): $(B)/tests/gpu/%: $(B)/obj/tests/gpu/%.o $(gpu_kernels)
	@mkdir -p $(@D)
	$(call say,LD)$(NVCC) $^ -ldl -o $@
gpu_CFLAGS := $(CUDA_CFLAGS)
$(B)/tests/gpu/model: $(addprefix $(B)/obj/tests/gpu/,model.o capture.o trace.o) $(B)/libberth.a
	@mkdir -p $(@D)
	$(call say,LD)$(call link)
-include $(shell find $(B) -name '*.d' 2>/dev/null)

# ---- everyday targets ---------------------------------------------------------------------------

.PHONY: all help test run bench asan tsan fuzz format lint install uninstall coverage clean compile_commands.json
## all: the host and every plugin that this machine can build (default)
all: $(if $(filter release,$(MODE)),build/berth) $(B)/berth $(B)/quantize $(product)
	$(foreach p,$(left_out),$(info skip $p: $(foreach r,$(call lacks,$p),$($r_WHY))))@:

## help: this list, then what was found on this machine and how to get the rest
help:
	@sed -n 's/^## \([^:]*\): /  \1|/p' Makefile | awk -F '|' '{ printf "%-34s %s\n", $$1, $$2 }'
	@echo; echo 'found on this machine (NAME=0 switches off, NAME=1 requires):'
	@printf '  %-8s%-4s %s\n' $(foreach o,$(optional),$o $($o_FOUND): '$($o_WHY)')

## test [FILTER=text] [SUITES=unit]: every test, or those whose "file_test.name" contains the text
test: all $(addprefix $(B)/,$(tests)) $(test_plugins)
	@tools/run-tests $(B) '$(FILTER)' $(tests)

MODEL ?= tests/data/models/shakespeare
# Lines as the checkpoint learned them, so that it recites in any type of activations.
define VERSE
ROMEO:
But, soft! what light through yonder window breaks?
It is the east,
endef
PROMPT ?= $(VERSE)
## run [MODEL=dir] [PROMPT=text]: generate text, by default with the checkpoint of the tests
run: all
	@$(B)/berth run --model '$(MODEL)' --prompt "$$PROMPT" -n $(or $(N),96)
run: export PROMPT := $(PROMPT)

## bench [FILTER=words] [MODEL=dir]: check, then time, host and ops, and the model if one is given; also to build/bench.tsv
# FILTER is what follows `berth bench`: "op linear". tools/bench-compare sets two such files, or builds, beside each other.
benches = $(if $(FILTER),'$(FILTER)',host op $(if $(filter command line environment,$(origin MODEL)),'model --model $(MODEL)'))
bench: all
	@(for words in $(benches); do $(B)/berth bench $$words || exit; done) >build/bench.txt; status=$$?; \
	    cat build/bench.txt; sed 's/   */\t/g' build/bench.txt >build/bench.tsv; rm build/bench.txt; exit $$status

## asan, tsan: the tests under the address and undefined behaviour, or the thread sanitizer
asan tsan:
	@$(MAKE) --no-print-directory MODE=$@ test

## coverage: the tests, then the lines that they reached
coverage:
	@$(MAKE) --no-print-directory MODE=coverage test
	@tools/coverage build/coverage

## fuzz TARGET=name [TIME=60]: one target of tests/fuzz, for so many seconds (needs clang)
fuzz:
	@command -v clang >/dev/null || { echo 'make fuzz: clang not found; install clang' >&2; exit 1; }
	@$(MAKE) --no-print-directory MODE=fuzz build/fuzz/tests/fuzz/$(or $(TARGET),$(error TARGET is one \
	    of $(basename $(notdir $(wildcard tests/fuzz/*.c)))))
	@mkdir -p build/fuzz/corpus/$(TARGET)
	@build/fuzz/tests/fuzz/$(TARGET) -max_total_time=$(or $(TIME),60) build/fuzz/corpus/$(TARGET) \
	    $(wildcard tests/fuzz/$(TARGET))
$(B)/tests/fuzz/%: $(B)/obj/tests/fuzz/%.o $(B)/libberth.a
	@mkdir -p $(@D)
	$(call say,LD)$(call link,-fsanitize=fuzzer)

formatted = $(shell find host plugin-api plugins kernels tests -name '*.[ch]' -o -name '*.cu')
## format: clang-format in place
format:
	@printf '%s\n' $(formatted) | xargs -n 1 clang-format -i

## lint: every check of tools/check-*, format and clang-tidy included
lint: all $(test_plugins) compile_commands.json
	@B=$(B) tools/lint

# Why not those left out: their headers may be missing.
units = $(wildcard host/main.c) $(host) $(filter-out $(patsubst %,plugins/%/%,$(left_out)),$(foreach d,plugins/* \
        kernels/* tests/support tests/fakes/* $(addprefix tests/,$(SUITES)),$(call sources_in,$d)))
define newline


endef
entry = {"directory": "$(CURDIR)"$(,) "file": "$1"$(,) "command": "cc $(subst ",\",$(call flags,$1)) -c $1"}
## compile_commands.json: for editors, in build/
compile_commands.json:
	$(call remember,build/$@,[$(newline)$(foreach u,$(units),$(call entry,$u)$(if \
	    $(filter $u,$(lastword $(units))),,$(,)$(newline)))$(newline)])@:

root = $(DESTDIR)$(PREFIX)
headers := $(wildcard plugin-api/berth/*.h)
## install, uninstall: program, plugins and plugin headers, under DESTDIR and PREFIX (/usr/local)
install: all
	@install -d $(root)/bin $(root)/lib/berth/plugins $(root)/lib/pkgconfig $(root)/include/berth
	@install -m 755 $(B)/berth $(root)/bin/berth
	@install -m 644 $(product) $(root)/lib/berth/plugins
	@install -m 644 $(headers) $(root)/include/berth
	@sed 's|@prefix@|$(PREFIX)|; s|@version@|$(file <VERSION)|' plugin-api/berth-plugin.pc.in \
	    >$(root)/lib/pkgconfig/berth-plugin.pc
uninstall:
	@rm -f $(root)/bin/berth $(root)/lib/pkgconfig/berth-plugin.pc \
	    $(addprefix $(root)/lib/berth/plugins/,$(notdir $(product))) \
	    $(addprefix $(root)/include/berth/,$(notdir $(headers)))
	@cd $(root) && rmdir -p --ignore-fail-on-non-empty bin lib/berth/plugins lib/pkgconfig include/berth

## clean: remove build/
clean:
	@rm -rf build
