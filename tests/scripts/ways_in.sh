# shellcheck shell=bash
# What cases use beside the prelude.
K=$HOMES/ada/.ssh/authorized_keys
KEY=$(cut -d' ' -f1,2 $T/user_ed25519.pub)
# ada's key file: one line with these options
line() { echo "${1:+$1 }$KEY" > $K; }
# a certificate for the key k, made now
mint() { cp $T/user_ed25519 k; cp $T/user_ed25519.pub k.pub; ssh-keygen -q -s $T/user_ca -I badge -z 7 "$@" k.pub; }
# a login with that certificate
badge() { by k gate "$@"; }
# a login with the method and ANSWER
asked() {
    SSH_ASKPASS=$T/askpass SSH_ASKPASS_REQUIRE=force ssh -F $T/bare -o BatchMode=no \
        -o NumberOfPasswordPrompts=1 -o PreferredAuthentications="$1" "${@:2}"
}
# the fields of an account in /etc/shadow: account N VALUE
shadow() { awk -F: -v OFS=: -v n=$1 -v v="$2" '$1 == "ada" { $n = v } 1' /etc/shadow > shadow; cat shadow > /etc/shadow; }
set +x
