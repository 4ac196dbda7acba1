# shellcheck shell=bash
# Words for the tests of `cluster/services.rs`.
AUTH=$(python3 -c '
import socket, struct
s = socket.socket(socket.AF_UNIX)
s.connect("cluster/auth/auth.sock")
print(struct.unpack("3i", s.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))[0])')
UP=$(grep ^PPid: "/proc/$AUTH/status")
FILTERS=$(grep -h ^Seccomp_filters: "/proc/${UP#PPid:?}/status" | cut -f 2)
service() {
    for p in $(grep -lx "$UP" /proc/[0-9]*/status 2> /dev/null); do
        p=${p%/status}
        case "$(tr '\0' ' ' 2> /dev/null < "$p/cmdline")" in
            "fleetgate $1 "*) echo "$p" ;;
        esac
    done
}
told() { grep -hE "^$1:" "$2"/task/*/status | sort -u | tr -d '\t'; }
is() { [ "$1" = "$2" ] || { echo "'$1' is not '$2'" >&2; exit 1; }; }
