# shellcheck shell=sh
# Accounts, the network, and in /run/test a copy of the keys that are in $KEYS.
ip link set lo up
mkdir -p /run/home/root/.ssh
sed -i 's,^root:.*,root:x:0:0:root:/run/home/root:/bin/bash,' /etc/passwd
account ada 54321 54322 Ada /bin/bash
account bea 54331 54332 Bea /bin/sh
echo 'fleetgate:x:54341:54342::/nonexistent:/usr/sbin/nologin' >> /etc/passwd
printf 'fleetgate:x:54342:\nfriends:x:54323:ada\n' >> /etc/group
echo ada:secret | chpasswd -c SHA256 -s 1000
echo 127.0.0.1 gate.test >> /etc/hosts
cp -a "$KEYS/." /run/test
for u in ada bea; do
    mkdir /run/home/$u/.ssh
    touch /run/home/$u/.hushlogin
    chmod 700 /run/home/$u /run/home/$u/.ssh
done
cat /run/test/user_*.pub | grep -v user_ca > /run/home/ada/.ssh/authorized_keys
cp /run/test/user_ed25519.pub /run/home/bea/.ssh/authorized_keys
chown -R 54321:54322 /run/home/ada
chown -R 54331:54332 /run/home/bea
