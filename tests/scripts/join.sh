# shellcheck shell=bash
# Has the node `gate` join.
mkdir node
cat > node/fleetgate.toml <<'END'
[node]
listen = ["127.0.0.1:2222"]
host_keys = ["/run/test/host_ed25519"]
state_directory = "/run/test/node"
root_login = "yes"
END
"$F" token add --state cluster --label place=cellar > token
"$F" join --proxy 127.0.0.1:3080 --token-file token --name gate --state node
