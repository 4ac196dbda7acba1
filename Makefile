# The two commands of the README are `make demo` and `make test`. Everything else is `cargo xtask help`.

# rustup's own place, for a shell that has not read its environment.
export PATH := $(PATH):$(HOME)/.cargo/bin
XTASK := cargo xtask

.PHONY: demo test build bench dist fuzz install-deps toolchain

# Builds, seals the session helper, opens a session for you through it, makes a cluster in a temporary folder and uses it,
# and says what each step cost.
demo: build
	$${CARGO_TARGET_DIR:-target}/release/fleetgate demo

# Everything that has to hold; as root, or the tests that need root are skipped and named.
test: toolchain
	xtask/install test
	$(XTASK) test

build: toolchain
	$(XTASK) build

# make bench NAME=launch
bench: toolchain
	xtask/install test bench
	$(XTASK) bench $(NAME)

# A .deb and an .rpm in target/dist.
dist: toolchain
	xtask/install test
	$(XTASK) dist

# Every parser that faces another privilege level, a minute each.
fuzz: toolchain
	xtask/install fuzz
	$(XTASK) fuzz

# Everything that any chore needs.
install-deps: toolchain
	xtask/install test bench fuzz selinux

toolchain:
	@xtask/toolchain
