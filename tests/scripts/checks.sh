# shellcheck shell=bash
# Words for the tests of `cluster/checks.rs`. Beside a release program stands the small one; any other is linked to its name.
CHECK=$(dirname "$F")/check_fleetgate
if [ ! -x "$CHECK" ]; then
    CHECK=/run/test/check_fleetgate
    [ -e "$CHECK" ] || ln -s "$F" "$CHECK"
fi
check() { "$CHECK" --home home -l ada "$@"; }
told() {
    local wanted=$1 line=$2 code=0; shift 2
    check "$@" > said 2> errors || code=$?
    [ "$code" = "$wanted" ] || { echo "$*: the code is $code, not $wanted" >&2; cat said errors >&2; exit 1; }
    case $(head -n 1 said) in "$line"*) ;; *) echo "$*: not $line:" >&2; cat said errors >&2; exit 1 ;; esac
}
# The first one, once the node is there.
begin() {
    for _ in $(seq 100); do if check -H gate -c state -a 0 > said 2> errors; then return; fi; sleep 0.1; done
    cat said errors >&2; return 1
}
# `late CODE LINE STATE`: the check `slow` has begun and is late. Where the machine is so busy that it had not begun by then, it
# is asked again with more time.
late() {
    local time
    for time in 1 2 4 8 16; do
        told "$1" "$2 - gate slow: no answer within $time s" -H gate -c slow -t "$time$3"
        [ ! -s slow ] || return 0
    done
    echo 'it does not begin' >&2; exit 1
}
