# queenfs - plain make; `make help` says what there is.
#
# SANITIZE=address|undefined|thread builds into a directory of its own, so that switching
# needs no clean; SANITIZE=valgrind tests the plain build under valgrind. WERROR= turns
# warnings back into warnings.

VERSION := 0.1.0
PREFIX ?= /usr/local
MAINTAINER ?= queenfs authors <queenfs@example.org>
WERROR ?= -Werror

ifneq ($(filter-out address undefined thread valgrind,$(SANITIZE)),)
$(error SANITIZE is address, undefined, thread or valgrind)
endif

SANITIZED := $(filter-out valgrind,$(SANITIZE))
BUILD := build$(addprefix /,$(SANITIZED))
LIB := $(BUILD)/libqueen.a
BIN := $(BUILD)/queenfs

STORE_OBJECTS := $(patsubst %.c,$(BUILD)/%.o,$(wildcard store/*.c))
FS_OBJECTS := $(patsubst %.c,$(BUILD)/%.o,$(wildcard fs/*.c))
UNIT_TESTS := $(patsubst tests/unit/%.c,$(BUILD)/tests/%,$(wildcard tests/unit/test_*.c))
FUZZERS := $(patsubst tests/fuzz/%.c,$(BUILD)/tests/%,$(wildcard tests/fuzz/fuzz_*.c))
BENCHES := $(patsubst %.c,$(BUILD)/%,$(wildcard tests/bench/*.c))
C_FILES := $(wildcard store/*.c fs/*.c tests/*/*.c)
H_FILES := $(wildcard store/*.h fs/*.h tests/*/*.h)

LIBRARIES := 'fuse3 >= 3.14' 'sqlite3 >= 3.40' inih
PACKAGES := build-essential pkg-config libfuse3-dev fuse3 libsqlite3-dev sqlite3 \
	libinih-dev libcmocka-dev bats perl attr python3 python3-prometheus-client \
	rsync tree ncdu less procps ed vim-tiny nano
PEER_PACKAGES := redis-server beanstalkd postgresql

# Include directories of libraries are -isystem: their headers are not ours to warn about.
LIB_CFLAGS := $(patsubst -I%,-isystem %,$(shell pkg-config --cflags $(LIBRARIES) 2>/dev/null))
FUSE_LIBS := $(shell pkg-config --libs fuse3 inih 2>/dev/null)
SQLITE_LIBS := $(shell pkg-config --libs sqlite3 2>/dev/null)

ifneq ($(SANITIZED),)
HARDEN := -fsanitize=$(SANITIZED) -fno-sanitize-recover=all -fno-omit-frame-pointer
else
HARDEN := -D_FORTIFY_SOURCE=2
endif
DEFINES := -D_GNU_SOURCE -D_FILE_OFFSET_BITS=64 \
	-DQUEENFS_VERSION='"$(VERSION)"' -Istore -Ifs $(LIB_CFLAGS)
FUSE_VERSION := -DFUSE_USE_VERSION=312
WARNINGS := -Wall -Wextra -Wshadow -Wstrict-prototypes -Wmissing-prototypes -Wvla $(WERROR)
ALL_CFLAGS = -std=c11 -O2 -g -fPIE -fstack-protector-strong $(HARDEN) $(WARNINGS) \
	$(DEFINES) -MMD -MP $(CFLAGS)
ALL_LDFLAGS := -pie -pthread -Wl,-z,relro,-z,now $(filter -fsanitize=%,$(HARDEN)) $(LDFLAGS)

.PHONY: all run stop test test-programs torture soak fuzz fuzz-programs bench bench-peers \
	bench-plot bench-programs check-layers deps lint format install uninstall deb clean help \
	libraries
.DELETE_ON_ERROR:

all: $(LIB) $(BIN)

help:
	@echo "make              build $(BIN) and $(LIB)"
	@echo "make run          mount the store ./queen.db at ./mnt; make stop unmounts it"
	@echo "make test         everything that has to pass; FILES='tests/fs/13_daemon.bats'"
	@echo "                  selects, JOBS=2 runs files at once"
	@echo "make torture      crashes, power cuts and I/O errors: KILLS=500 CUTS=2000 ERRORS=1,"
	@echo "                  or SECONDS=600: as much of it as fits"
	@echo "make soak         a long life: SECONDS=3600 of mixed load, in which the daemon's"
	@echo "                  clock shows a week; are memory and files flat, promises kept?"
	@echo "make bench        build and run the benchmarks; ONLY=W1,W6 ROUNDS=5 BENCH_DIR="
	@echo "make bench-peers  the same with Redis, beanstalkd and PostgreSQL, installed if need be"
	@echo "make bench-plot   draw build/bench.csv as tests/bench/figures.svg (gnuplot)"
	@echo "make fuzz         let libFuzzer try SECONDS=60 on every target of tests/fuzz,"
	@echo "                  or on TARGET=cursor; needs clang"
	@echo "make deps         install the Debian packages that build and tests need"
	@echo "make check-layers is the wall between store/ and fs/ whole?"
	@echo "make lint format  clang-format, clang-tidy and cppcheck; clang-format -i"
	@echo "make install      DESTDIR= PREFIX=$(PREFIX); make uninstall"
	@echo "make deb          a Debian package in $(BUILD)/"
	@echo "make clean        remove build/"
	@echo "SANITIZE=address|undefined|thread|valgrind, WERROR= and CFLAGS= go with most of them"

# ---- building ----------------------------------------------------------------------

libraries:
	@pkg-config --exists $(LIBRARIES) || { echo "queenfs needs libfuse 3.14, SQLite 3.40" \
		"and inih with their headers: make deps installs them" >&2; exit 1; }

$(FS_OBJECTS): DEFINES += $(FUSE_VERSION)

$(BUILD)/%.o: %.c Makefile | libraries
	@mkdir -p $(@D)
	$(CC) $(ALL_CFLAGS) -c -o $@ $<

$(LIB): $(STORE_OBJECTS)
	rm -f $@
	$(AR) rcs $@ $^

$(BIN): $(FS_OBJECTS) $(LIB)
	$(CC) $(ALL_LDFLAGS) -o $@ $^ $(FUSE_LIBS) $(SQLITE_LIBS)

$(BUILD)/tests/test_%: $(BUILD)/tests/unit/test_%.o $(LIB)
	$(CC) $(ALL_LDFLAGS) -o $@ $^ -lcmocka $(SQLITE_LIBS)

$(BUILD)/tests/crash/power: $(patsubst %,$(BUILD)/tests/crash/%.o,power load disk) $(LIB)
	$(CC) $(ALL_LDFLAGS) -o $@ $^ $(SQLITE_LIBS)

$(BUILD)/tests/bench/%: $(BUILD)/tests/bench/%.o
	$(CC) $(ALL_LDFLAGS) -o $@ $^ $(FUSE_LIBS) $(SQLITE_LIBS)

# Replays a corpus; with FUZZ_MAIN= and libFuzzer it makes one (see fuzz).
FUZZ_MAIN := $(BUILD)/tests/fuzz/replay.o
$(BUILD)/tests/fuzz_%: $(BUILD)/tests/fuzz/fuzz_%.o $(FUZZ_MAIN) \
		$(filter-out $(BUILD)/fs/main.o,$(FS_OBJECTS)) $(LIB)
	$(CC) $(ALL_LDFLAGS) -o $@ $^ $(FUSE_LIBS) $(SQLITE_LIBS)

.SECONDARY: $(patsubst %.c,$(BUILD)/%.o,$(wildcard tests/*/*.c))
-include $(wildcard $(BUILD)/*/*.d $(BUILD)/tests/*/*.d)

# ---- trying it out -----------------------------------------------------------------

# The sub-make reads the libraries' flags once they are surely installed.
run: deps
	@if mountpoint -q mnt && stat -f mnt >/dev/null 2>&1; then \
		echo "already mounted at ./mnt (make stop unmounts it)"; \
	else \
		$(MAKE) --no-print-directory all && { mkdir mnt 2>/dev/null || :; } && \
		$(BIN) -c queenfs.ini queen.db mnt && \
		echo "mounted at ./mnt; try:" && \
		echo "mkdir mnt/queues/jobs" && \
		echo "echo 'resize photo-1.png' >> mnt/queues/jobs/push" && \
		echo "cat mnt/queues/jobs/pop"; \
	fi

stop:
	@if grep -qF ' $(CURDIR)/mnt ' /proc/self/mountinfo; then \
		fusermount3 -u mnt || umount mnt; \
	else echo "nothing is mounted at ./mnt"; fi

# ---- checks ------------------------------------------------------------------------

test: deps
	@$(MAKE) --no-print-directory all test-programs fuzz-programs
	@MAKEFLAGS= BUILD='$(BUILD)' SANITIZE='$(SANITIZE)' JOBS='$(JOBS)' tests/run $(FILES)

test-programs: $(UNIT_TESTS) $(BUILD)/tests/crash/power

# KILLS of the daemon, CUTS of the power, and an error at every ERRORS-th write and sync.
# SECONDS, shared by kills and cuts: rounds until then, whatever the numbers say.
KILLS ?= 500
CUTS ?= 2000
ERRORS ?= 1

torture: deps
	@$(MAKE) --no-print-directory all test-programs
	@QUEENFS='$(abspath $(BIN))' CRASH_BIN='$(abspath $(BUILD)/tests/crash)' \
		KILLS='$(KILLS)' CUTS='$(CUTS)' ERRORS='$(ERRORS)' SECONDS_ALL='$(SECONDS)' \
		tests/crash/torture

soak: deps
	@$(MAKE) --no-print-directory all
	@QUEENFS='$(abspath $(BIN))' QUEENFS_SANITIZE='$(SANITIZE)' \
		SECONDS_ALL='$(or $(SECONDS),3600)' tests/crash/soak

fuzz-programs: $(FUZZERS)

# The corpus grows in build/fuzz/corpus; what is worth it is committed to tests/fuzz/corpus.
TARGET := $(patsubst tests/fuzz/fuzz_%.c,%,$(wildcard tests/fuzz/fuzz_*.c))
FUZZ_FLAGS := -fsanitize=address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer
fuzz:
	@$(MAKE) --no-print-directory CC=clang BUILD=build/fuzz FUZZ_MAIN= \
		HARDEN='$(FUZZ_FLAGS) -fsanitize=fuzzer-no-link' \
		LDFLAGS='-fsanitize=fuzzer' $(TARGET:%=build/fuzz/tests/fuzz_%)
	@for target in $(TARGET); do \
		mkdir -p build/fuzz/corpus/$$target build/fuzz/found tests/fuzz/corpus/$$target && \
		echo "$$target:" && nice build/fuzz/tests/fuzz_$$target \
			-max_total_time=$(or $(SECONDS),60) -timeout=20 -rss_limit_mb=4096 -close_fd_mask=3 \
			-print_final_stats=1 -artifact_prefix=build/fuzz/found/$$target- \
			$(FUZZ_OPTIONS) \
			build/fuzz/corpus/$$target tests/fuzz/corpus/$$target \
			>build/fuzz/$$target.log 2>&1; \
		status=$$?; \
		grep -E 'stat::(number|average)|^Done|ERROR|broken|runtime error' build/fuzz/$$target.log; \
		[ $$status = 0 ] || { tail -n 40 build/fuzz/$$target.log; exit 1; }; \
	done

RUN_BENCH = QUEENFS='$(BIN)' BENCH_BIN='$(BUILD)/tests/bench' \
	ROUNDS='$(ROUNDS)' ONLY='$(ONLY)' tests/bench/run

bench: deps
	@$(MAKE) --no-print-directory all bench-programs
	@$(RUN_BENCH)

# What cannot be installed is left out of the table, with a line that says so.
bench-peers: deps
	@$(MAKE) --no-print-directory deps PACKAGES='$(PEER_PACKAGES)' || \
		echo "some of $(PEER_PACKAGES) could not be installed: is there a network?"
	@$(MAKE) --no-print-directory all bench-programs
	@PEERS=1 $(RUN_BENCH)

bench-plot:
	@tests/bench/plot build/bench.csv tests/bench/figures.svg

bench-programs: $(BENCHES)

# store/ never sees FUSE, fs/ never sees SQLite or the inside of store/.
check-layers: $(LIB)
	@! grep -nE '#[[:space:]]*include[[:space:]]*[<"](.*/)?fuse' store/*.[ch]
	@! grep -nE '#[[:space:]]*include[[:space:]]*[<"](.*/)?(sqlite3|store_int)\.h' fs/*.[ch]
	@! nm -u $(LIB) | grep -E '\bfuse_'
	@echo "store/ and fs/ keep to their sides"

# Left out: what has no answer in C11 (memcpy_s), a check that takes every va_start() for
# missing, and what is a matter of taste.
TIDY := -*,clang-analyzer-*,bugprone-*,misc-redundant-expression,performance-*,$\
	-clang-analyzer-security.insecureAPI.DeprecatedOrUnsafeBufferHandling,$\
	-clang-analyzer-valist.Uninitialized,-bugprone-suspicious-string-compare,$\
	-bugprone-easily-swappable-parameters,-bugprone-narrowing-conversions,$\
	-bugprone-reserved-identifier,-bugprone-sizeof-expression,-performance-no-int-to-ptr,-bugprone-assignment-in-if-condition

# cppcheck has to see what the macros of <sys/queue.h> are.
QUEUE_H := $(firstword $(wildcard /usr/include/sys/queue.h /usr/include/*/sys/queue.h))

lint:
	clang-format --dry-run -Werror $(C_FILES) $(H_FILES)
	clang-tidy --quiet --warnings-as-errors='*' --checks='$(TIDY)' \
		$(filter-out fs/%,$(C_FILES)) -- -std=c11 $(DEFINES)
	clang-tidy --quiet --warnings-as-errors='*' --checks='$(TIDY)' \
		$(filter fs/%,$(C_FILES)) -- -std=c11 $(DEFINES) $(FUSE_VERSION)
	cppcheck --quiet --std=c11 --library=posix,bsd $(QUEUE_H:%=--include=%) --inline-suppr --error-exitcode=1 \
		--enable=warning,performance,portability $(filter-out -isystem /usr%,$(DEFINES)) store fs tests

format:
	clang-format -i $(C_FILES) $(H_FILES)

# ---- installing --------------------------------------------------------------------

# dpkg-query fails, and nothing is printed, for a package that was never there.
deps:
	@missing=; for package in $(PACKAGES); do \
		case "$$(dpkg-query -W -f '$${Status}' $$package 2>/dev/null)" in \
		*' installed') ;; \
		*) missing="$$missing $$package" ;; \
		esac; \
	done; \
	[ -n "$$missing" ] || exit 0; \
	if ! command -v apt-get >/dev/null; then \
		echo "there is no apt-get here; please install what Debian calls$$missing"; \
		exit 0; \
	fi; \
	as_root=; [ "$$(id -u)" = 0 ] || as_root=sudo; \
	$$as_root env DEBIAN_FRONTEND=noninteractive apt-get -q update && \
	$$as_root env DEBIAN_FRONTEND=noninteractive apt-get -q -y \
		install --no-install-recommends $$missing

# The daemon reads /etc/queenfs.ini, mount(8) looks for its helpers in /sbin, both wherever
# the program is: so they are touched only for a program of the whole machine. For another
# PREFIX the settings are an example, and the unit a file to link by systemctl.
prefix := $(patsubst %/,%,$(PREFIX))
machine := $(filter /usr /usr/local,$(prefix))
unitdir := $(if $(filter /usr,$(prefix)),,$(prefix))/lib/systemd/system
D = $(DESTDIR)
INSTALLED = $D$(prefix)/bin/queenfs $D$(prefix)/share/man/man8/queenfs.8 \
	$D$(unitdir)/queenfs@.service $D$(prefix)/share/doc/queenfs/queenfs.ini.example \
	$(if $(machine),$D/sbin/mount.fuse.queenfs)

# mount.fuse3 learns from its name what it mounts; mount.fuse, which mount(8) would call
# without the link, belongs to libfuse 2 on some machines, and is missing on others.
install: all
	install -D -m 755 $(BIN) $D$(prefix)/bin/queenfs
	install -D -m 644 fs/queenfs.8 $D$(prefix)/share/man/man8/queenfs.8
	install -D -m 644 queenfs.ini $D$(prefix)/share/doc/queenfs/queenfs.ini.example
	install -d $D$(unitdir)
	sed 's|@BINDIR@|$(prefix)/bin|' 'fs/queenfs@.service' >$(BUILD)/unit
	install -m 644 $(BUILD)/unit '$D$(unitdir)/queenfs@.service'
ifneq ($(machine),)
	install -d $D/sbin
	ln -sfn mount.fuse3 $D/sbin/mount.fuse.queenfs
	@if [ -e $D/etc/queenfs.ini ]; then echo "$D/etc/queenfs.ini is left as it is"; \
	else echo "install -D -m 644 queenfs.ini $D/etc/queenfs.ini"; \
	install -D -m 644 queenfs.ini $D/etc/queenfs.ini; fi
endif

# Stores, and settings that somebody has changed, stay.
uninstall:
	rm -f $(INSTALLED)
	-rmdir $D$(prefix)/share/doc/queenfs
ifneq ($(machine),)
	@if cmp -s queenfs.ini $D/etc/queenfs.ini; then \
		echo "rm $D/etc/queenfs.ini"; rm $D/etc/queenfs.ini; \
	elif [ -e $D/etc/queenfs.ini ]; then echo "$D/etc/queenfs.ini was changed, and stays"; fi
endif

# ---- a Debian package ----------------------------------------------------------------

define DEB_CONTROL
Package: queenfs
Version: $(VERSION)
Architecture: @ARCHITECTURE@
Maintainer: $(MAINTAINER)
Installed-Size: @SIZE@
Depends: @DEPENDS@, fuse3
Section: misc
Priority: optional
Description: durable, partitioned message queue as files
 queenfs mounts a message queue as a directory: each line written to a file is
 a message, readers of another file share the work or get it all, and writing
 a time into a group's cursor reads the past again. It is one daemon and one
 SQLite file; there is no protocol to speak and no client to install.
endef

define DEB_COPYRIGHT
Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/

Files: *
Copyright: @COPYRIGHT@
License: Expat
endef

define DEB_CHANGELOG
queenfs ($(VERSION)) unstable; urgency=medium

  * Built by make deb.

 -- $(MAINTAINER)  @DATE@
endef

# On an upgrade what is mounted goes on with the program it was started with: to end it is
# to end the mount under those who use it.
define DEB_PRERM
#!/bin/sh
set -e
if [ "$$1" = remove ] && [ -d /run/systemd/system ]; then
	systemctl stop 'queenfs@*.service' || true
fi
endef

define DEB_POST
#!/bin/sh
set -e
if [ -d /run/systemd/system ]; then
	systemctl daemon-reload || true
fi
endef
export DEB_CONTROL DEB_COPYRIGHT DEB_CHANGELOG DEB_PRERM DEB_POST

STAGE := $(BUILD)/deb
DEB_DOC := $(STAGE)/usr/share/doc/queenfs

deb: all
	rm -rf $(STAGE)
	$(MAKE) --no-print-directory install DESTDIR=$(STAGE) PREFIX=/usr
	strip --strip-unneeded --remove-section=.comment --remove-section=.note \
		$(STAGE)/usr/bin/queenfs
	cp README.md $(DEB_DOC)
	printf '%s\n' "$$DEB_CHANGELOG" | sed "s/@DATE@/$$(date -R -r README.md)/" \
		>$(DEB_DOC)/changelog
	{ printf '%s\n' "$$DEB_COPYRIGHT" | \
		sed "s/@COPYRIGHT@/$$(sed -n 's/^Copyright (c) //p' LICENSE)/"; \
		sed -n 's/^$$/./;/^Permission/,$$s/^/ /p' LICENSE; } >$(DEB_DOC)/copyright
	gzip -9n $(STAGE)/usr/share/man/man8/queenfs.8 $(DEB_DOC)/changelog $(DEB_DOC)/README.md
	mkdir $(STAGE)/DEBIAN $(STAGE)/debian
	printf '%s\n' "$$DEB_PRERM" >$(STAGE)/DEBIAN/prerm
	printf '%s\n' "$$DEB_POST" | tee $(STAGE)/DEBIAN/postinst >$(STAGE)/DEBIAN/postrm
	echo /etc/queenfs.ini >$(STAGE)/DEBIAN/conffiles
	cd $(STAGE) && find usr lib -type f -exec md5sum {} + >DEBIAN/md5sums
	echo 'Source: queenfs' >$(STAGE)/debian/control # dpkg-shlibdeps wants one
	depends=$$(cd $(STAGE) && dpkg-shlibdeps -O usr/bin/queenfs) && \
	rm -r $(STAGE)/debian && printf '%s\n' "$$DEB_CONTROL" | sed \
		-e "s/@DEPENDS@/$${depends#shlibs:Depends=}/" \
		-e "s/@ARCHITECTURE@/$$(dpkg --print-architecture)/" \
		-e "s/@SIZE@/$$(du -sk --exclude=DEBIAN $(STAGE) | cut -f 1)/" \
		>$(STAGE)/DEBIAN/control
	chmod -R u=rwX,go=rX $(STAGE)
	chmod 755 $(STAGE)/DEBIAN/p*
	dpkg-deb --root-owner-group --build $(STAGE) $(BUILD)

clean:
	rm -rf build
