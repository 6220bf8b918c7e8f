# hutch - build, install, test. `make help` lists the targets.

PREFIX  ?= /usr/local
DESTDIR ?=
LIBDIR  ?= $(PREFIX)/lib
B       ?= build
CC      ?= gcc

# The library, and with it whatever embeds it, needs the first four; the next two are for unpacking images, then come two for the
# prompt of `hutch repl` and for images on terminals, and the last is for `hutch serve`.
LIBHUTCH_PC := libseccomp libcap libcgroup libcjson
LIBS_PC     := $(LIBHUTCH_PC) libarchive libcrypto libedit spng libmicrohttpd

# Hardening, each with its reason; `make lint` looks for the effect of each in the finished program:
#   -fPIC, and -pie for programs
#                           everything is loaded at a random address, so an exploit cannot jump to a known one. PIC where PIE
#                           would do for the programs, because the same objects become the library; the next flag makes up for it
#   -fno-semantic-interposition
#                           no reason of safety: calls within a file may be inlined although a library could replace them
#   -z relro -z now         the table of library functions is read-only before main() starts
#   -z noexecstack          data on the stack is never code
#   -fstack-protector-strong, -fstack-clash-protection
#                           an overflow of a stack buffer aborts; a large frame cannot jump over the guard page
#   -D_FORTIFY_SOURCE=2     libc checks the sizes of buffers it can see (needs -O)
#   -fno-strict-overflow    a missed overflow check stays a wrong number and is not compiled away
# Left out: -fcf-protection. Debian's C start files are not marked for it, so the linker drops the mark from the
# whole program and no CPU would check anything.
HARDEN_C  := -fPIC -fno-semantic-interposition -fstack-protector-strong -fstack-clash-protection -fno-strict-overflow
FORTIFY   ?= -U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=2
HARDEN_LD := -Wl,-z,relro -Wl,-z,now -Wl,-z,noexecstack

WARN := -Wall -Wextra -Wshadow -Wstrict-prototypes -Wmissing-prototypes -Wpointer-arith -Wwrite-strings \
        -Wundef -Wformat=2 -Wvla -Werror=implicit-function-declaration

# The directory build-asan is the same program with AddressSanitizer and UBSan. FORTIFY is off there because its
# checked libc calls would bypass the sanitizer's own.
ifeq ($(notdir $(B)),build-asan)
CFLAGS   ?= -O1 -g -fno-omit-frame-pointer
FORTIFY  := -U_FORTIFY_SOURCE
SANITIZE ?= -fsanitize=address,undefined -fno-sanitize-recover=all
endif
# build-fuzz is the same for libFuzzer, by clang, which counts what an input reaches.
ifeq ($(notdir $(B)),build-fuzz)
CFLAGS   ?= -O1 -g -fno-omit-frame-pointer
FORTIFY  := -U_FORTIFY_SOURCE
SANITIZE ?= -fsanitize=fuzzer-no-link,address,undefined -fno-sanitize-recover=all
endif
CFLAGS   ?= -O2 -g
SANITIZE ?=
PC_CFLAGS   = $(eval PC_CFLAGS := $(shell pkg-config --cflags $(LIBS_PC) 2>/dev/null))$(PC_CFLAGS)# asked once
# Includes name the whole path from here: the room is a part of a header's name, and two rooms may both have a run.h.
ALL_CFLAGS  = -std=gnu11 -D_GNU_SOURCE $(WARN) $(HARDEN_C) $(FORTIFY) $(CFLAGS) $(SANITIZE) \
              -iquote . $(PC_CFLAGS)
LIB_LDFLAGS = $(HARDEN_LD) $(SANITIZE) $(LDFLAGS)
ALL_LDFLAGS = -pie $(HARDEN_LD) $(SANITIZE) $(LDFLAGS)
LDLIBS      = $(shell pkg-config --libs $(LIBS_PC)) -lm

SRC  := $(wildcard sandbox/*.c rootfs/*.c runtime/*/*.c)
OBJ  := $(SRC:%.c=$(B)/%.o)
MAIN := runtime/cli/main runtime/cli/rootfs_main runtime/cli/serve_main runtime/launcher/main
CORE := $(filter-out $(MAIN:%=$(B)/%.o),$(OBJ))
# The releases of Debian that images are made of, the usual one first.
RELEASES := $(shell rootfs/packages.sh releases)
FLAVOURS := $(shell rootfs/packages.sh flavours)
# Images that tests unpack; built once, for every build directory.
export HUTCH_TEST_IMAGES ?= $(CURDIR)/build/images/$(or $(HUTCH_SUITE),$(firstword $(RELEASES)))
# Kernels that run as a process, fetched once likewise.
export HUTCH_TEST_KERNELS ?= $(CURDIR)/build/kernels

UNIT := $(patsubst tests/unit/%.c,$(B)/tests/unit/%,$(wildcard tests/unit/*/test_*.c))

SUBMAKE = $(MAKE) --no-print-directory -j $(shell nproc)

# Counts what a step of `make check` takes, for the table at its end.
STEPS := $(B)/steps
STEP   = @python3 tests/steps.py $(STEPS)

# One short line for each file; `make V=1` shows the commands.
ifeq ($(V),)
Q   := @
say  = $(if $(findstring s,$(firstword -$(MAKEFLAGS))),,@printf '  %-4s %s\n' $(1) $@)
endif

.PHONY: all
all: $(B)/hutch $(B)/hutch-rootfs $(B)/hutch-serve $(B)/hutch-launcher $(B)/libhutch.a $(B)/libhutch.so.1 ## build programs and library (the default)

# Each program takes from the archive what it uses, and with --as-needed only the libraries that this needs: loading
# those of hutch-rootfs and hutch-serve would cost every `hutch run` 3 ms.
$(B)/hutch: $(B)/runtime/cli/main.o $(B)/internal.a
$(B)/hutch-rootfs: $(B)/runtime/cli/rootfs_main.o $(B)/internal.a
$(B)/hutch-serve: $(B)/runtime/cli/serve_main.o $(B)/internal.a
$(B)/hutch-launcher: $(B)/runtime/launcher/main.o $(B)/internal.a
$(B)/hutch $(B)/hutch-rootfs $(B)/hutch-serve $(B)/hutch-launcher:
	$(call say,LD)
	$(Q)$(CC) $(ALL_CFLAGS) $(ALL_LDFLAGS) -Wl,--as-needed -o $@ $^ $(LDLIBS)

$(B)/internal.a: $(CORE)
	$(call say,AR)
	$(Q)rm -f $@
	$(Q)ar qcs $@ $^ # not r: members of two rooms may have one name

# The library is one object: the members of the archive that hutch.h's functions need, linked together and with all other names made
# local, so that it meets nobody's names in whatever it is linked into. That object is the static library and goes into the shared one.
EXPORTS := $(shell sed -n 's/^ *\(hutch_[a-z_]*\);$$/\1/p' runtime/libhutch.map)
$(B)/libhutch.o: $(B)/internal.a runtime/libhutch.map
	$(call say,LD)
	$(Q)$(CC) -r -nostdlib -o $@.part $(EXPORTS:%=-Wl,-u,%) $<
	$(Q)objcopy $(EXPORTS:%=--keep-global-symbol=%) $@.part $@
	$(Q)rm -f $@.part

$(B)/libhutch.a: $(B)/libhutch.o
	$(call say,AR)
	$(Q)rm -f $@
	$(Q)ar rcs $@ $^

# -z defs: whatever the library uses, it names the library that has it. Sanitizers' functions come from the program.
$(B)/libhutch.so.1: $(B)/libhutch.o runtime/libhutch.map
	$(call say,LD)
	$(Q)$(CC) -shared $(LIB_LDFLAGS) $(if $(SANITIZE),,-Wl$(comma)-z$(comma)defs) -Wl,-soname,$(@F) \
	    -Wl,--version-script,runtime/libhutch.map -Wl,--as-needed -o $@ $< $(shell pkg-config --libs $(LIBHUTCH_PC))
comma := ,

$(B)/%.o: %.c $(B)/flags
	@mkdir -p $(@D)
	$(call say,CC)
	$(Q)$(CC) $(ALL_CFLAGS) -MMD -MP -c -o $@ $<

# Drivers for tests, and a soak. Linked as an embedding program is: hutch.h is their only header of ours.
DRIVERS := $(B)/tests/warm_many $(B)/tests/soak
$(B)/tests/warm_many: tests/warm_many.c
$(B)/tests/soak: $(wildcard tests/soak/*.c)
$(DRIVERS): runtime/hutch.h tests/soak/soak.h $(B)/libhutch.a
	@mkdir -p $(@D)
	$(call say,TEST)
	$(Q)$(CC) $(ALL_CFLAGS) $(ALL_LDFLAGS) -o $@ $(filter %.c,$^) $(B)/libhutch.a \
	    $(shell pkg-config --libs $(LIBHUTCH_PC))

$(B)/tests/unit/%: tests/unit/%.c $(B)/internal.a
	@mkdir -p $(@D)
	$(call say,TEST)
	$(Q)$(CC) $(ALL_CFLAGS) $(ALL_LDFLAGS) -MMD -MP -o $@ $< $(B)/internal.a $(LDLIBS) -lcmocka

# Fuzz targets, in build-fuzz.
FUZZ := $(patsubst tests/fuzz/%.c,$(B)/tests/fuzz/%,$(wildcard tests/fuzz/*.c))
$(B)/tests/fuzz/%: tests/fuzz/%.c tests/fuzz/fuzz.h $(B)/internal.a
	@mkdir -p $(@D)
	$(call say,FUZZ)
	$(Q)$(CC) $(ALL_CFLAGS) $(ALL_LDFLAGS) -Werror=incompatible-function-pointer-types -fsanitize=fuzzer -o $@ $< $(B)/internal.a $(LDLIBS)

# The same targets without libFuzzer, which replay their seeds.
REPLAY := $(patsubst tests/fuzz/%.c,$(B)/tests/unit/replay/%,$(wildcard tests/fuzz/*.c))
$(B)/tests/unit/replay/%: tests/fuzz/%.c tests/replay.c tests/fuzz/fuzz.h $(B)/internal.a
	@mkdir -p $(@D)
	$(call say,TEST)
	$(Q)$(CC) $(ALL_CFLAGS) $(ALL_LDFLAGS) -o $@ $< tests/replay.c $(B)/internal.a $(LDLIBS)

# For the test that a zygote's helper needs no particular libc; left out where there is no musl-gcc.
$(B)/tests/musl_zygote: tests/unit/musl/zygote.c
	@mkdir -p $(@D)
	$(Q)! command -v musl-gcc >/dev/null || musl-gcc -O2 -Wall -o $@ $<

# What a zygote loads inside an image, see rootfs/helper/helper.c: no library is linked, and the symbols that it takes from the
# image's libc have no version. No fortified calls: they are GNU's.
HELPER_SRC := $(addprefix rootfs/helper/,helper.c memory.c own_proc.c freeze.c immortal.c guards.c pymain.c pyjob.c pyrun.c channel.c fork_to_init.c rseq.c spawner.c paths.c) $(addprefix sandbox/,execute.c worker.c caps_drop.c rlimits.c landlock.c seccomp_load.c err.c fdpass.c)
$(B)/rootfs/helper.so: $(HELPER_SRC) $(wildcard sandbox/*.h rootfs/helper/*.h) $(B)/flags
	@mkdir -p $(@D)
	$(call say,LD)
	$(Q)$(CC) -std=gnu11 -D_GNU_SOURCE $(WARN) -O2 -g0 -fPIC -fvisibility=hidden -fno-strict-overflow -U_FORTIFY_SOURCE \
	    -DHUTCH_ANY_LIBC -iquote . -include rootfs/helper/any_libc.h -shared -nostdlib -Wl,-Bsymbolic,-z,relro,-z,now,-z,noexecstack \
	    -o $@ $(HELPER_SRC)

# The Python files that run inside a sandbox are part of the program; the compiler's own dependency
# output does not see files that the assembler reads.
$(B)/rootfs/guest.o: $(wildcard rootfs/python/*.py rootfs/python/zygote/*.py) $(B)/rootfs/hook.pyc $(B)/rootfs/helper.so
$(B)/rootfs/guest.o: private ALL_CFLAGS += -DHUTCH_HELPER_SO='"$(B)/rootfs/helper.so"'
$(B)/rootfs/guest.o: private ALL_CFLAGS += -DHUTCH_HOOK_PYC='"$(B)/rootfs/hook.pyc"'

$(B)/runtime/cli/commands.o $(B)/runtime/cli/flavour.o: rootfs/packages.txt
$(B)/runtime/cli/commands.o $(B)/runtime/cli/flavour.o: private ALL_CFLAGS += -DHUTCH_RELEASES='"$(RELEASES)"' -DHUTCH_FLAVOURS='"$(FLAVOURS)"'

$(B)/runtime/batch/judge.o: $(wildcard runtime/batch/judge/*.py)
$(B)/runtime/gateway/catalog_api.o: runtime/gateway/openapi.json
$(B)/runtime/ui/page.o: $(wildcard runtime/ui/*.html runtime/ui/*.css runtime/ui/*.js)
$(B)/runtime/cli/completion.o: $(wildcard runtime/cli/completion.*sh)

# Byte code of the hook for images with the same Python as this machine. Other images compile the source at
# each start (1 ms), so an empty file will do where there is no Python.
$(B)/rootfs/hook.pyc: rootfs/python/sitecustomize.py rootfs/python/precompile.py
	@mkdir -p $(@D)
	@python=$$(PATH=/usr/bin:$$PATH command -v python3) && "$$python" rootfs/python/precompile.py $< $@ || : >$@

# Rewritten only when compiler or flags differ from the last time, which then rebuilds everything.
$(B)/flags: export FLAGS = $(CC) $(ALL_CFLAGS) $(ALL_LDFLAGS)
$(B)/flags: FORCE
	@pkg-config --exists $(LIBS_PC) 2>/dev/null || { \
	    echo "hutch: cannot build, these development packages are missing: $$(for pc in $(LIBS_PC); do \
	        pkg-config --exists $$pc 2>/dev/null || echo $$pc-dev; done | sed 's/libcrypto/libssl/; s/spng/libspng/' | xargs)." >&2; \
	    echo "hutch: 'make deps' installs them." >&2; exit 1; }
	@mkdir -p $(@D)
	@echo "$$FLAGS" | cmp -s - $@ || echo "$$FLAGS" >$@
.PHONY: FORCE

.PHONY: deps
deps: ## install what is missing to build hutch and its images (Debian)
	.ci/packages build images

.PHONY: demo
demo: ## install what is missing, build everything, and analyse an example data set, also by clients of others
	@.ci/packages build images npm
	@$(SUBMAKE) all
	@examples/demo $(B)/hutch $(B)/demo
	@examples/clients/ask $(B)/hutch $(B)/demo build/clients

.PHONY: unit
unit: $(UNIT) $(REPLAY) $(B)/tests/musl_zygote $(DRIVERS)

.PHONY: fuzz-programs
fuzz-programs: $(FUZZ)

# Where there is no clang with its libraries for it, the lane is a named skip.
.PHONY: fuzz-targets
fuzz-targets:
	@if echo 'int LLVMFuzzerTestOneInput(void) { return 0; }' | \
	    clang -fsanitize=fuzzer,address,undefined -x c -o /dev/null - 2>/dev/null; then \
	    $(SUBMAKE) B=build-fuzz CC=clang fuzz-programs; \
	else rm -rf build-fuzz/tests/fuzz; fi

.PHONY: fuzz
fuzz: ## run each fuzz target for an hour; HUTCH_FUZZ_SECONDS says otherwise
	@.ci/packages build images test fuzz
	@$(SUBMAKE) all unit
	@$(SUBMAKE) fuzz-targets
	@HUTCH_FUZZ_SECONDS=$${HUTCH_FUZZ_SECONDS:-3600} tests/run B=$(B) fuzz

# What is there already is not fetched again.
.PHONY: clients
clients: ## fetch the clients and servers of others that tests use, by npm and apt
	$(STEP) 'fetch clients of others' tests/clients/install build/clients
	$(STEP) 'fetch servers of others' tests/proxies/install build/clients/proxies

# All that the lanes need, made once, after the packages.
.PHONY: test-parts
test-parts:
	$(STEP) 'build everything' $(SUBMAKE) all unit clients test-images test-tarball

# Debian 12 alone can link it, see .ci/dist/libraries.
.PHONY: test-tarball
test-tarball: all
	@pkg-config --atleast-version=3 libcgroup || python3 tests/steps.py $(STEPS) 'link the tarball and make its image' $(SUBMAKE) image

.PHONY: test-images
test-images: $(addprefix $(HUTCH_TEST_IMAGES)/,minimal.tar python.tar node.tar)

# The packages come first, and all of them at once.
.PHONY: check
check: export HUTCH_TEST_STEPS := $(abspath $(STEPS))
check: ## install what is missing, build, and run the main path of everything (12 minutes)
	@rm -f $(STEPS)
	@.ci/packages build images test tarball
	@$(MAKE) --no-print-directory test-parts
	@tests/run B=$(B)

.PHONY: check-bookworm
check-bookworm: ## the lanes that run Python, with images of Debian 12
	@.ci/packages build images test tarball
	@$(MAKE) --no-print-directory test-parts
	@HUTCH_SUITE=bookworm HUTCH_TEST_IMAGES=$(CURDIR)/build/images/bookworm tests/run --full B=$(B) e2e hostile warm kill

.PHONY: check-images
check-images: ## build images by the Dockerfile and of others with podman and buildah, and use them (half an hour)
	@.ci/packages build images test
	@$(SUBMAKE) all unit
	@tests/run B=$(B) images

# Images of Debian with compilers, servers, an office suite and a browser: 6 GB below build/programs, which are made once.
.PHONY: check-programs
check-programs: ## run compilers, servers, converters and browsers of Debian inside, and compare with outside (half an hour)
	@.ci/packages build programs
	@$(SUBMAKE) all
	@tests/programs/images $(CURDIR)/build/programs
	@HUTCH_BIN=$(abspath $(B))/hutch tests/programs/run

.PHONY: check-full
check-full: export HUTCH_TEST_STEPS := $(abspath $(STEPS))
check-full: ## what check runs and what it leaves out: rare races, other users and kernels, libFuzzer (an hour)
	@rm -f $(STEPS)
	@.ci/packages build images test tarball kernel fuzz
	@$(MAKE) --no-print-directory test-parts
	$(STEP) 'compile fuzz targets' $(SUBMAKE) fuzz-targets
	@tests/run --full B=$(B)

.PHONY: check-steady
check-steady: ## run check's lanes eight times, as root and as a user, on a quiet, a busy and a slow machine (root, two hours)
	@.ci/packages build images test tarball
	@$(MAKE) --no-print-directory test-parts
	@tests/steady

.PHONY: check-everyone
check-everyone: ## all lanes as root, as a user, and without control groups (hours)
	@.ci/packages build images test tarball kernel fuzz
	@$(MAKE) --no-print-directory test-parts
	@$(SUBMAKE) fuzz-targets
	@tests/run --everyone B=$(B)

.PHONY: check-suites
check-suites: ## run other people's test suites inside and outside and compare (hours); HUTCH_SUITES="grep sed" chooses
	@.ci/packages build images suites kernel
	@$(SUBMAKE) all
	@HUTCH_BIN=$(abspath $(B))/hutch tests/suites/run
	@HUTCH_BIN=$(abspath $(B))/hutch HUTCH_SUITES_POLICY=trusted tests/suites/run sed grep
	@HUTCH_BIN=$(abspath $(B))/hutch tests/suites/machine
	@HUTCH_BIN=$(abspath $(B))/hutch HUTCH_SUITES_POLICY=strict tests/suites/machine sed

.PHONY: soak
soak: ## 2,000 kills of an engine's processes and 100,000 runs, which `check` has in a short form (an hour or two)
	@.ci/packages build images test
	@$(SUBMAKE) all unit
	@HUTCH_SOAK=full tests/run B=$(B) soak

.PHONY: load
load: ## 256 clients of `hutch serve` for a minute, with a reload, a restart and a kill
	@.ci/packages build images test
	@$(SUBMAKE) all
	@HUTCH_BIN=$(abspath $(B))/hutch tests/soak/gateway_load.py

.PHONY: fuzz-http
fuzz-http: ## send `hutch serve` requests that are nearly right, for 20 minutes, with sanitizers
	@.ci/packages build images test
	@$(SUBMAKE) B=build-asan all
	@HUTCH_BIN=$(abspath build-asan)/hutch tests/soak/gateway_fuzz.py

.PHONY: asan
asan: ## run the unit, end-to-end and hostile lanes under AddressSanitizer and UBSan
	@.ci/packages build images test
	@$(SUBMAKE) B=build-asan all unit clients
	@tests/run B=build-asan unit e2e hostile

.PHONY: lint
lint: ## compile with gcc and clang with warnings as errors, and run the checkers
	@.ci/packages build test lint
	@$(SUBMAKE) B=build-gcc CC=gcc CFLAGS='-O2 -g -Werror' all unit
	@$(SUBMAKE) B=build-clang CC=clang CFLAGS='-O2 -g -Werror' all unit
	@.ci/lint build-gcc build-clang

$(B)/bench/floor: bench/floor.c $(B)/flags
	@mkdir -p $(@D)
	$(call say,CC)
	$(Q)$(CC) $(ALL_CFLAGS) $(ALL_LDFLAGS) -o $@ $<

# Linked as an embedding program is: against the public library, hutch.h its only header of ours.
$(B)/bench/warm $(B)/bench/sessions: $(B)/bench/%: bench/%.c bench/common.c bench/common.h runtime/hutch.h $(B)/libhutch.a $(B)/flags
	@mkdir -p $(@D)
	$(call say,CC)
	$(Q)$(CC) $(ALL_CFLAGS) $(ALL_LDFLAGS) -o $@ $(filter %.c,$^) $(B)/libhutch.a $(shell pkg-config --libs $(LIBHUTCH_PC)) -lm

# The gateway is asked as its clients ask it. Its floor is the gateway itself with a route more, which nothing else has.
$(B)/bench/gateway: bench/gateway.c bench/http.c bench/common.c bench/http.h bench/common.h runtime/hutch.h $(B)/libhutch.a $(B)/flags
	@mkdir -p $(@D)
	$(call say,CC)
	$(Q)$(CC) $(ALL_CFLAGS) $(ALL_LDFLAGS) -o $@ $(filter %.c,$^) $(B)/libhutch.a $(shell pkg-config --libs $(LIBHUTCH_PC)) -lm

$(B)/bench/instant: bench/instant.c $(B)/internal.a $(B)/flags
	@mkdir -p $(@D)
	$(call say,CC)
	$(Q)$(CC) $(ALL_CFLAGS) $(ALL_LDFLAGS) -Wl,--as-needed -o $@ $(filter %.c %.a,$^) $(LDLIBS)

BENCH := $(addprefix $(B)/bench/,floor warm sessions gateway instant)

.PHONY: bench
bench: ## measure the kernel's floor, warm and cold runs, and whatever else is installed
	@.ci/packages build images test
	@$(SUBMAKE) all $(BENCH)
	@bench/report --build $(B)

# What `hutch rootfs build` needs: everything below rootfs/ that is not compiled into the program.
ROOTFS_DATA := $(filter-out %.c %.h rootfs/python rootfs/helper,$(wildcard rootfs/*))

# Files that `make install` puts below PREFIX; DATA is not share/hutch, which below ~/.local is the user's own store of images. No
# path of the installation is compiled in, so that installing what was built compiles nothing, whatever PREFIX is.
DATA := share/hutch-data
INSTALLED := bin/hutch bin/hutch-rootfs bin/hutch-serve libexec/hutch-launcher include/hutch.h share/man/man1/hutch.1 share/man/man1/hutch-serve.1 share/man/man3/libhutch.3 \
    share/bash-completion/completions/hutch share/zsh/site-functions/_hutch share/fish/vendor_completions.d/hutch.fish
INSTALLED_LIB := libhutch.so.1 libhutch.so libhutch.a pkgconfig/libhutch.pc
# The Python package, which serves every version of Python; its links to the judge become files.
PYTHON_FILES := $(patsubst clients/%,%,$(wildcard $(addprefix clients/python/,README.md pyproject.toml hutch/py.typed hutch/*.py hutch/*/*.py)))
BUILT := $(addprefix $(B)/,hutch hutch-rootfs hutch-serve hutch-launcher libhutch.a libhutch.so.1)

.PHONY: install
install: $(if $(filter-out $(wildcard $(BUILT)),$(BUILT)),all) ## install what was built below PREFIX (DESTDIR is honoured)
	install -d $(addprefix $(DESTDIR)$(PREFIX)/,$(sort $(dir $(INSTALLED))) $(DATA)/policies $(DATA)/rootfs) $(DESTDIR)$(LIBDIR)/pkgconfig
	install -m 755 $(B)/hutch $(B)/hutch-rootfs $(B)/hutch-serve $(DESTDIR)$(PREFIX)/bin/
	install -m 755 $(B)/hutch-launcher $(DESTDIR)$(PREFIX)/libexec/
	install -m 644 runtime/hutch.h $(DESTDIR)$(PREFIX)/include/
	install -m 755 $(B)/libhutch.so.1 $(DESTDIR)$(LIBDIR)/
	ln -sf libhutch.so.1 $(DESTDIR)$(LIBDIR)/libhutch.so
	install -m 644 $(B)/libhutch.a $(DESTDIR)$(LIBDIR)/
	sed -e 's|@PREFIX@|$(PREFIX)|' -e 's|@LIBDIR@|$(patsubst $(PREFIX)/%,$${prefix}/%,$(LIBDIR))|' -e 's|@REQUIRES@|$(LIBHUTCH_PC)|' \
	    -e "s|@VERSION@|$$(sed -n 's/^#define HUTCH_VERSION "\(.*\)"$$/\1/p' runtime/cli/version.h)|" \
	    runtime/libhutch.pc.in >$(DESTDIR)$(LIBDIR)/pkgconfig/libhutch.pc
	chmod 644 $(DESTDIR)$(LIBDIR)/pkgconfig/libhutch.pc
	install -m 644 docs/libhutch.3 $(DESTDIR)$(PREFIX)/share/man/man3/
	install -m 644 policies/*.json $(DESTDIR)$(PREFIX)/$(DATA)/policies/
	cp -R $(ROOTFS_DATA) $(DESTDIR)$(PREFIX)/$(DATA)/rootfs/
	for file in $(PYTHON_FILES); do install -D -m 644 clients/$$file $(DESTDIR)$(PREFIX)/$(DATA)/$$file || exit 1; done
	chmod -R a+rX $(DESTDIR)$(PREFIX)/$(DATA)/rootfs
	install -m 644 docs/hutch.1 docs/hutch-serve.1 $(DESTDIR)$(PREFIX)/share/man/man1/
	$(B)/hutch completion bash >$(DESTDIR)$(PREFIX)/share/bash-completion/completions/hutch
	$(B)/hutch completion zsh >$(DESTDIR)$(PREFIX)/share/zsh/site-functions/_hutch
	$(B)/hutch completion fish >$(DESTDIR)$(PREFIX)/share/fish/vendor_completions.d/hutch.fish
	chmod 644 $(DESTDIR)$(PREFIX)/share/bash-completion/completions/hutch \
	    $(DESTDIR)$(PREFIX)/share/zsh/site-functions/_hutch $(DESTDIR)$(PREFIX)/share/fish/vendor_completions.d/hutch.fish

# By name, never a whole directory: policies of the operator's own may lie beside ours.
.PHONY: uninstall
uninstall: ## remove what `make install` with the same PREFIX and DESTDIR has put there; stores of images stay
	rm -f $(addprefix $(DESTDIR)$(PREFIX)/,$(INSTALLED) $(addprefix $(DATA)/,$(wildcard policies/*.json) $(ROOTFS_DATA) $(PYTHON_FILES))) \
	    $(addprefix $(DESTDIR)$(LIBDIR)/,$(INSTALLED_LIB))
	for dir in $(sort $(dir $(PYTHON_FILES))); do rm -rf $(DESTDIR)$(PREFIX)/$(DATA)/$$dir/__pycache__; done
	for dir in $(addprefix $(DATA)/,policies rootfs python/hutch/human_eval python/hutch/judge python/hutch python) $(DATA); do \
	    rmdir $(DESTDIR)$(PREFIX)/$$dir 2>/dev/null || :; done

# The same programs without a library of the host's, and what they need besides, in one directory that can lie anywhere. glibc and
# static, of Debian's own libraries: .ci/dist/libraries makes those that Debian has as shared ones only, .ci/dist/static.c says what such a
# program does where others load one.
STATIC         := $(B)/static
STATIC_LIBS    := -L$(STATIC) -lseccomp -lcap -lcgroup -lcjson -larchive -lcrypto -ledit -lspng -lmicrohttpd -ltinfo -lbsd -lmd \
                  -lzstd -llzma -lbz2 -llz4 -lz -lm
STATIC_PROGRAMS = $(addprefix $(STATIC)/,hutch hutch-rootfs hutch-serve hutch-launcher)
$(STATIC)/hutch: $(B)/runtime/cli/main.o
$(STATIC)/hutch-rootfs: $(B)/runtime/cli/rootfs_main.o
$(STATIC)/hutch-serve: $(B)/runtime/cli/serve_main.o
$(STATIC)/hutch-launcher: $(B)/runtime/launcher/main.o
# Linked each time: no file says that one of Debian's libraries has another version now.
$(STATIC_PROGRAMS): $(B)/internal.a $(B)/.ci/dist/static.o $(STATIC)/made-of FORCE
	$(call say,LD)
	$(Q)$(CC) $(ALL_CFLAGS) -static-pie $(HARDEN_LD) $(LDFLAGS) -Wl,--build-id=none -Wl,--wrap=dlopen -Wl,--wrap=dlerror \
	    -Wl,--wrap=getpwuid -s -o $@ $(filter %.o,$^) -Wl,--start-group $(B)/internal.a $(STATIC_LIBS) -Wl,--end-group \
	    2>$@.log || { grep -v "in statically linked" $@.log >&2; exit 1; }
$(STATIC)/made-of: FORCE
	@.ci/dist/libraries $(STATIC)

.PHONY: tarball
tarball: ## build a tarball of static programs, which runs without installing anything
	@.ci/packages build tarball
	@$(SUBMAKE) all
	@$(SUBMAKE) $(STATIC_PROGRAMS)
	@.ci/dist/tarball $(B)

.PHONY: image
image: tarball ## build an image of hutch itself from that tarball, for podman, docker and clusters
	@.ci/dist/image $(B)

.PHONY: check-tarball
check-tarball: tarball $(HUTCH_TEST_IMAGES)/minimal.tar ## use the tarball on clean trees of Debian 12 and 13, and build it twice (root, minutes)
	@.ci/packages images test
	/usr/bin/python3 -m pytest -q -p no:cacheprovider tests/dist

.PHONY: check-debian
check-debian: $(HUTCH_TEST_IMAGES)/minimal.tar $(HUTCH_TEST_IMAGES)/python.tar $(HUTCH_TEST_IMAGES)/node.tar ## build, demo and unit tests on a tree of the other Debian, 12 or 13 (root, minutes)
	@.ci/packages images test
	/usr/bin/python3 -m pytest -q -p no:cacheprovider tests/debian

$(HUTCH_TEST_IMAGES)/%.tar:
	@.ci/packages images
	@mkdir -p $(@D)
	$(STEP) 'build the image $*' rootfs/build.sh $* $@.part
	@mv $@.part $@

# Debian packages, by debhelper in a copy of the tree: dpkg-buildpackage leaves what it makes beside that.
.PHONY: deb
deb: ## build Debian packages in build/deb
	@.ci/packages build deb
	rm -rf $(B)/deb
	mkdir -p $(B)/deb/hutch
	tar -c --exclude=./build --exclude='./build-*' --exclude=./.git --exclude=node_modules . | tar -x -C $(B)/deb/hutch
	cd $(B)/deb/hutch && dpkg-buildpackage -us -uc -b
	rm -rf $(B)/deb/hutch
	lintian --fail-on error,warning --allow-root $(B)/deb/*.changes
	ls -l $(B)/deb/*.deb

.PHONY: check-deb
check-deb: deb $(HUTCH_TEST_IMAGES)/minimal.tar ## install the packages on clean trees of Debian 12 and 13, use them and remove them (root, minutes)
	@.ci/packages images test
	/usr/bin/python3 -m pytest -q -p no:cacheprovider tests/deb

.PHONY: clean
clean: ## remove everything that was built here (images stay in the store)
	rm -rf build build-*

.PHONY: help
help: ## this list
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1\t\2/p' Makefile | expand -t 20

-include $(OBJ:.o=.d) $(UNIT:=.d)
