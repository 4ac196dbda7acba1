# shellcheck shell=bash
# What every script in a cluster's world begins with; `$F` is the program.
set -eu
cd /run/test
role_for() {
    printf '[role.everything]\nnodes = ["%s"]\nlogins = ["ada", "root"]\n' "$1" > role.toml
    "$F" role apply --state cluster -f role.toml
}
role() {
    printf '[role.everything]\nnodes = ["*"]\nlogins = [%s]\n%s\n' "$1" "${2:-}" > role.toml
    "$F" role apply --state cluster -f role.toml
}
login_config() {
    cat > "$1.config" <<END
Host *
    IdentityFile $1/id
    CertificateFile $1/id-cert.pub
    IdentitiesOnly yes
    IdentityAgent none
    UserKnownHostsFile $1/known_hosts
    GlobalKnownHostsFile /dev/null
    StrictHostKeyChecking yes
    BatchMode yes
END
}
again() {
    for _ in $(seq 300); do "$@" > tried 2>&1 && return; done
    cat tried >&2; return 1
}
