# hutch - build, install, test. `make help` lists the targets.

PREFIX  ?= /usr/local
DESTDIR ?=
B       ?= build
CC      ?= gcc

LIBS_PC := libseccomp libcap libcgroup libcjson libarchive libcrypto

# Hardening, each with its reason:
#   -fPIE -pie              the program is loaded at a random address, so an exploit cannot jump to a known one
#   -z relro -z now         the table of library functions is read-only before main() starts
#   -fstack-protector-strong, -fstack-clash-protection
#                           an overflow of a stack buffer aborts; a large frame cannot jump over the guard page
#   -D_FORTIFY_SOURCE=2     libc checks the sizes of buffers it can see (needs -O)
#   -fcf-protection         indirect jumps land only on marked targets where the CPU checks it (x86)
#   -fno-strict-overflow    a missed overflow check stays a wrong number and is not compiled away
HARDEN_C  := -fPIE -fstack-protector-strong -fstack-clash-protection -fno-strict-overflow
ifeq ($(shell uname -m),x86_64)
HARDEN_C  += -fcf-protection
endif
FORTIFY   ?= -U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=2
HARDEN_LD := -pie -Wl,-z,relro -Wl,-z,now -Wl,-z,noexecstack

WARN := -Wall -Wextra -Wshadow -Wstrict-prototypes -Wmissing-prototypes -Wpointer-arith -Wwrite-strings \
        -Wundef -Wformat=2 -Wvla -Werror=implicit-function-declaration

CFLAGS  ?= -O2 -g
SANITIZE ?=
ALL_CFLAGS  = -std=gnu11 -D_GNU_SOURCE $(WARN) $(HARDEN_C) $(FORTIFY) $(CFLAGS) $(SANITIZE) \
              -DHUTCH_PREFIX='"$(PREFIX)"' -Isandbox -Irootfs -Iruntime $(shell pkg-config --cflags $(LIBS_PC))
ALL_LDFLAGS = $(HARDEN_LD) $(SANITIZE) $(LDFLAGS)
LDLIBS      = $(shell pkg-config --libs $(LIBS_PC))

SRC  := $(wildcard sandbox/*.c rootfs/*.c runtime/*.c)
OBJ  := $(SRC:%.c=$(B)/%.o)
CORE := $(filter-out $(B)/runtime/main.o,$(OBJ))
UNIT := $(patsubst tests/unit/%.c,$(B)/tests/%,$(wildcard tests/unit/test_*.c))

.PHONY: all
all: $(B)/hutch

$(B)/hutch: $(OBJ)
	$(CC) $(ALL_CFLAGS) $(ALL_LDFLAGS) -o $@ $^ $(LDLIBS)

$(B)/%.o: %.c Makefile
	@mkdir -p $(@D)
	$(CC) $(ALL_CFLAGS) -MMD -MP -c -o $@ $<

$(B)/tests/%: tests/unit/%.c $(CORE)
	@mkdir -p $(@D)
	$(CC) $(ALL_CFLAGS) $(ALL_LDFLAGS) -MMD -MP -o $@ $< $(CORE) $(LDLIBS) -lcmocka

.PHONY: unit
unit: $(UNIT)

.PHONY: clean
clean:
	rm -rf build build-*

-include $(OBJ:.o=.d) $(UNIT:=.d)
