//! The machine that clients and servers of one test share: accounts, keys, certificates, configurations. All of it
//! lives on a tmpfs of the calling thread's own mount table and goes with it.

use crate::login_world::sh;

/// Where everything is; the same in every world.
pub const DIR: &str = "/run/test";

/// Accounts, and the network. Root's home moves, because OpenSSH's client takes it from `/etc/passwd`: nothing here
/// may see the machine's own `~/.ssh`.
const ACCOUNTS: &str = "set -e
ip link set lo up
mount -t tmpfs -o mode=755 none /run
mkdir -p /run/etc /run/work /run/sshd /run/lock /run/test /run/home/root/.ssh /run/home/ada/.ssh /run/home/bea/.ssh
mount -t overlay -o lowerdir=/etc,upperdir=/run/etc,workdir=/run/work none /etc
mount -t tmpfs -o mode=755 none /var/log
touch /run/utmp /var/log/wtmp /var/log/lastlog
install -m 600 /dev/null /var/log/btmp
sed -i 's,^root:.*,root:x:0:0:root:/run/home/root:/bin/bash,' /etc/passwd
echo 'ada:x:54321:54322:Ada:/run/home/ada:/bin/bash' >> /etc/passwd
echo 'bea:x:54331:54332:Bea:/run/home/bea:/bin/sh' >> /etc/passwd
echo 'fleetgate:x:54341:54342::/nonexistent:/usr/sbin/nologin' >> /etc/passwd
printf 'fleetgate:x:54342:\\nada:x:54322:\\nbea:x:54332:\\nfriends:x:54323:ada\\n' >> /etc/group
printf 'ada:*:19000:0:99999:7:::\\nbea:*:19000:0:99999:7:::\\n' >> /etc/shadow
echo ada:secret | chpasswd -c SHA256 -s 1000
for u in ada bea; do
    touch /run/home/$u/.hushlogin
    chmod 700 /run/home/$u /run/home/$u/.ssh
done
echo 127.0.0.1 gate.test >> /etc/hosts
";

/// Keys of the server, the user and two authorities. Made once per world; the large RSA keys take the longest.
const KEYS: &str = "set -e
cd /run/test
new() { ssh-keygen -q -N '' -C \"$1\" -f \"$1\" -t $2 ${3:+-b $3}; }
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
    echo \"[127.0.0.1]:2222,[gate.test]:2222 $(cut -d' ' -f1,2 $h.pub)\"
done > known_hosts
echo \"@cert-authority [127.0.0.1]:2222,[gate.test]:2222 $(cut -d' ' -f1,2 host_ca.pub)\" > known_authority
cat user_*.pub | grep -v user_ca > /run/home/ada/.ssh/authorized_keys
cp user_ed25519.pub /run/home/bea/.ssh/authorized_keys
chown -R 54321:54322 /run/home/ada
chown -R 54331:54332 /run/home/bea
printf '#!/bin/sh\\necho ${ANSWER-secret}\\n' > askpass
chmod 755 askpass
";

/// The node's own, as its package installs it.
const PAM: &str = include_str!("../../../packaging/pam.debian");

/// What every OpenSSH client reads, by `-F` or as root's own `~/.ssh/config`; the file `bare` names no key.
const CLIENT: &str = "Host gate gate2 gate.test 127.0.0.1
    HostName 127.0.0.1
    Port 2222
    User ada
    IdentitiesOnly yes
    UserKnownHostsFile /run/test/known_hosts
    GlobalKnownHostsFile /dev/null
    StrictHostKeyChecking yes
    UpdateHostKeys no
    BatchMode yes
    ConnectTimeout 30
    LogLevel ERROR
";

/// The calling thread's own.
pub struct World(());

impl World {
    /// Makes it; needs root.
    pub fn new() -> World {
        fleetgate_sys::mount::separate().expect("a mount table of its own");
        fleetgate_sys::net::separate().expect("a network of its own");
        sh(ACCOUNTS);
        std::fs::write("/etc/pam.d/fleetgate", PAM).expect("write");
        sh(KEYS);
        for path in ["/run/test/config", "/run/home/root/.ssh/config"] {
            let key = "    IdentityFile /run/test/user_ed25519\n";
            std::fs::write(path, format!("{CLIENT}{key}")).expect("write");
        }
        std::fs::write("/run/test/bare", CLIENT).expect("write");
        World(())
    }
}

impl Default for World {
    fn default() -> World {
        World::new()
    }
}
