# shellcheck shell=bash
# A machine of its own for `SCRIPT`.
mount --make-rprivate /
cp -a /etc "$DIR/etc"
rm -rf "$DIR/etc/fleetgate"
mount --bind "$DIR/etc" /etc
for place in /run /var/lib /var/log /tmp /root; do mount -t tmpfs none $place; done
ip link set lo up
cd "$DIR/work" || exit
export HOME=/root PATH="$DIR/bin:$PATH"
unset FLEETGATE_HOME SSH_AUTH_SOCK
exec timeout "$PATIENCE" bash "$SCRIPT"
