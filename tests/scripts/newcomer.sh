# shellcheck shell=bash
# Words for the tests of `cluster/newcomer.rs`.
damaged() {
    rm -rf hurt; mkdir -m 700 hurt
    for file in home/*; do if [ -f "$file" ]; then cp -p "$file" hurt; fi; done
    case $2 in
        cut) truncate -s 30 "hurt/$1" ;;
        garbled) head -c 300 /dev/urandom > "hurt/$1" ;;
        gone) rm "hurt/$1" ;;
    esac
}
said() { local code=0; "$F" "$@" > out 2>&1 < /dev/null || code=$?; echo "$code $(cat out)"; }
LOGIN="--password-file password --authenticator totp --no-agent"
