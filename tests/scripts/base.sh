# shellcheck shell=sh
# What every world begins with: /run, /etc and /var/log of the thread's own. `account NAME UID GID NAME SHELL` adds one.
set -e
mount -t tmpfs -o mode=755 none /run
mkdir -p /run/etc /run/work /run/sshd /run/lock /run/test
mount -t overlay -o lowerdir=/etc,upperdir=/run/etc,workdir=/run/work none /etc
mount -t tmpfs -o mode=755 none /var/log
touch /run/utmp /var/log/wtmp /var/log/lastlog
install -m 600 /dev/null /var/log/btmp
account() {
    echo "$1:x:$2:$3:$4:/run/home/$1:$5" >> /etc/passwd
    echo "$1:x:$3:" >> /etc/group
    echo "$1:*:19000:0:99999:7:::" >> /etc/shadow
    mkdir -p "/run/home/$1"
    chown "$2:$3" "/run/home/$1"
}
