# shellcheck shell=sh
# Two accounts with a key each.
account ada 54321 54322 Ada /bin/sh
account bea 54331 54332 Bea /bin/sh
mkdir /run/test/keys
cd /run/test || exit
for key in host ca ada bea stranger; do ssh-keygen -q -t ed25519 -N '' -C '' -f $key; done
cp ada.pub keys/ada
cp bea.pub keys/bea
