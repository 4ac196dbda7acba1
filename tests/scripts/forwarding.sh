# shellcheck shell=bash
# Servers to forward to.
python $PEERS/python/echo.py 7100 $PWD/echo.sock & listens 7100; listens $PWD/echo.sock; chmod 777 echo.sock . ..
bg() { s -S $PWD/ctl -M -o ExitOnForwardFailure=yes -f -N "$@" gate; }
end() { s -S $PWD/ctl -O exit gate 2> /dev/null; }
says() { is "$(echo hello | nc -N "$@")" hello; }
