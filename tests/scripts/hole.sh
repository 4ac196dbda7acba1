# shellcheck shell=bash
# Addresses behind a device that nobody reads from.
ip tuntap add dev hole mode tun
    ip addr add 192.0.2.1/24 dev hole
    ip addr add 2001:db8::1/64 dev hole nodad
    ip link set hole up
