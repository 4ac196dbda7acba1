# shellcheck shell=sh
# An account, and what a login shows.
account ada 54321 54322 Ada /bin/bash
echo 'friends:x:54323:ada' >> /etc/group
mkdir /run/home/ada/.ssh
echo '# nothing' > /run/home/ada/.bashrc
chown -R 54321:54322 /run/home/ada
usermod -s /bin/sh root
echo ada:secret | chpasswd
printf '#!/bin/sh\necho secret\n' > /run/test/askpass
chmod 755 /run/test/askpass
printf 'Welcome to the test.\nBe kind.\n' > /etc/motd
ln -sf /usr/share/zoneinfo/Europe/Berlin /etc/localtime
printf 'LANG=C.UTF-8\nQUOTED="a b"\n' > /etc/environment
