# shellcheck shell=bash
# `fleetgate ssh` and its configuration.
export FLEETGATE_HOME=$T/home
f() { "$FLEETGATE" ssh "$@"; }
