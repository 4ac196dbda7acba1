# shellcheck shell=bash
# PuTTY's keys and host keys.
puttygen $T/user_ed25519 -O private -o key.ppk 2> /dev/null
to=(-batch -P 2222 -l ada -i key.ppk -hostkey "$(ssh-keygen -lf $T/host_ed25519.pub | cut -d' ' -f2)")
for h in host_ecdsa256 host_rsa; do to+=(-hostkey "$(ssh-keygen -lf $T/$h.pub | cut -d' ' -f2)"); done
