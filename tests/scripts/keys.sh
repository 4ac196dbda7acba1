# shellcheck shell=sh
# Keys of the server, the user and two authorities, in this directory.
set -e
new() { ssh-keygen -q -N '' -C "$1" -f "$1" -t $2 ${3:+-b $3}; }
new user_ca ed25519
new host_ca ed25519
for key in 'ed25519 ed25519' 'ecdsa256 ecdsa 256' 'rsa rsa 3072'; do
    set -- $key
    new host_$1 $2 $3
    ssh-keygen -q -s host_ca -h -I host_$1 -n gate.test,127.0.0.1 host_$1.pub
done
for key in 'ed25519 ed25519' 'ecdsa256 ecdsa 256' 'ecdsa384 ecdsa 384' 'rsa rsa 3072'; do
    set -- $key
    new user_$1 $2 $3
    new cert_$1 $2 $3
    ssh-keygen -q -s user_ca -I cert_$1 -n ada cert_$1.pub
done
new stranger ed25519
ssh-keygen -q -s host_ca -I wrong_ca -n ada stranger.pub
for h in host_ed25519 host_ecdsa256 host_rsa; do
    echo "[127.0.0.1]:2222,[gate.test]:2222 $(cut -d' ' -f1,2 $h.pub)"
done > known_hosts
echo "@cert-authority [127.0.0.1]:2222,[gate.test]:2222 $(cut -d' ' -f1,2 host_ca.pub)" > known_authority
printf '#!/bin/sh\necho ${ANSWER-secret}\n' > askpass
chmod 755 askpass
