"""What asyncssh does with a server: commands, signals and breaks, terminals, files, forwarding both ways."""
import asyncio
import os
import asyncssh

HOST = dict(host="127.0.0.1", port=2222, username="ada", known_hosts="/run/test/known_hosts", config=None, agent_path=None)


async def echoes(reader, writer):
    writer.write(b"hello")
    writer.write_eof()
    got = await reader.read()
    assert got == b"hello", got
    writer.close()


async def main():
    async with asyncssh.connect(client_keys=["/run/test/user_ed25519"], **HOST) as c:
        r = await c.run("echo out; echo err >&2; exit 7")
        assert (r.stdout, r.stderr, r.exit_status) == ("out\n", "err\n", 7), r
        big = os.urandom(1 << 16) * 80
        r = await c.run("cat", input=big, encoding=None)
        assert r.stdout == big
        r = await c.run("echo $LANG", env={"LANG": "C.UTF-8"})
        assert r.stdout == "C.UTF-8\n", r.stdout

        # A signal ends a program, and its end says by which.
        p = await c.create_process("echo up; exec sleep 1000")
        assert await p.stdout.readline() == "up\n"
        p.send_signal("TERM")
        await p.wait()
        assert p.exit_signal and p.exit_signal[0] == "TERM", p.exit_signal

        # A window that changes, a break, which means nothing to a pseudo-terminal, and an interrupt from the keyboard.
        p = await c.create_process(
            "trap 'stty size' WINCH; trap 'echo caught; exit 4' INT; echo up; while :; do sleep 9 & wait; done",
            term_type="vt220", term_size=(90, 30))
        while "up" not in await p.stdout.readline():
            pass
        p.change_terminal_size(123, 45)
        while "45 123" not in await p.stdout.readline():
            pass
        p.send_break(500)
        p.stdin.write("\x03")
        while "caught" not in await p.stdout.readline():
            pass
        await p.wait()
        assert p.exit_status == 4, p.exit_status

        async with c.start_sftp_client() as sftp:
            with open("f", "wb") as f:
                f.write(big)
            await sftp.put("f", "a")
            await sftp.get("a", "g")
            assert open("g", "rb").read() == big
            assert (await sftp.stat("a")).size == len(big) and "a" in await sftp.listdir()
            await sftp.remove("a")
        await asyncssh.scp("f", (c, "b"))
        await asyncssh.scp((c, "b"), "h")
        assert open("h", "rb").read() == big
        await c.run("rm b", check=True)

        await echoes(*await c.open_connection("127.0.0.1", 7100))
        await echoes(*await c.open_unix_connection(os.path.abspath("echo.sock")))
        listener = await c.forward_local_port("127.0.0.1", 0, "127.0.0.1", 7100)
        await echoes(*await asyncio.open_connection("127.0.0.1", listener.get_port()))
        listener = await c.forward_remote_port("127.0.0.1", 0, "127.0.0.1", 7100)
        await echoes(*await asyncio.open_connection("127.0.0.1", listener.get_port()))
        listener = await c.forward_remote_path("/run/home/ada/as.sock", os.path.abspath("echo.sock"))
        await echoes(*await asyncio.open_unix_connection("/run/home/ada/as.sock"))
        listener.close()
        await listener.wait_closed()

        async def one(n):
            assert (await c.run("read x; echo ${x}%d" % n, input="n\n")).stdout == "n%d\n" % n

        await asyncio.gather(*(one(n) for n in range(10)))

    async with asyncssh.connect(client_keys=[("/run/test/cert_ed25519", "/run/test/cert_ed25519-cert.pub")], **HOST) as c:
        assert (await c.run("id -un")).stdout == "ada\n"
    async with asyncssh.connect(client_keys=["/run/test/user_rsa"], rekey_bytes="256K", **HOST) as c:
        assert (await c.run("cat", input=big, encoding=None)).stdout == big
    for mac in ("hmac-sha2-256-etm@openssh.com", "hmac-sha2-512-etm@openssh.com"):
        async with asyncssh.connect(
            client_keys=["/run/test/user_ecdsa256"], encryption_algs=["aes256-ctr"], mac_algs=[mac],
            kex_algs=["ecdh-sha2-nistp384"], **HOST) as c:
            assert (await c.run("echo on")).stdout == "on\n"
    try:
        await asyncssh.connect(client_keys=["/run/test/stranger"], **HOST)
        raise SystemExit("a stranger came in")
    except asyncssh.PermissionDenied:
        pass


asyncio.run(asyncio.wait_for(main(), 60))
