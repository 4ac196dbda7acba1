# shellcheck shell=bash
# Makes ada, and logs her in, in `home`.
echo 'a long password of ada' > password
role '"ada", "bea", "root"' 'kinds = ["all"]'
umask 077
"$F" user add --state cluster ada --role everything > invite
"$F" login --home home --proxy 127.0.0.1:3080 --invite-file invite --password-file password --authenticator totp --no-agent
login_config /run/test/home
