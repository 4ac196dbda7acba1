# shellcheck shell=bash
# A security key made of software.
needs $FETCHED/fido/token.so
export SSH_SK_HELPER=$PEERS/fido/helper
KEYS=$HOMES/ada/.ssh/authorized_keys
# A key of the token: a file, then what ssh-keygen is told. $kind is ecdsa or ed25519.
new() { rm -f $1*; ssh-keygen -q -t $kind-sk -N '' -f "$@"; }
# A certificate for the key KEY by the authority CA.
certify() { ssh-keygen -q -s $1 -I "${2##*/}" -n ada "${@:3}" $2.pub; }
# The one line of authorized_keys: options, then the key.
line() { echo "$1 $(cat $2.pub)" > $KEYS; }
enters() { is "$(by "$@" gate id -un)" ada; }
refused() { exits 255 by "$@" gate true; }
