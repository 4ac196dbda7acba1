// What node's ssh2 does with a server.
"use strict";
const { Client } = require("ssh2");
const { randomBytes } = require("crypto");
const { readFileSync } = require("fs");
const net = require("net");
const path = require("path");
const assert = require("assert");

const known = readFileSync("/run/test/known_hosts", "utf8").split("\n").map((l) => l.split(" ")[2]);

function connect(key, more) {
  return new Promise((resolve, reject) => {
    const client = new Client();
    client.on("ready", () => resolve(client)).on("error", reject);
    client.connect({
      host: "127.0.0.1", port: 2222, username: "ada", privateKey: readFileSync(key),
      // It asks for unix sockets only where the version looks like one of OpenSSH's own.
      strictVendor: false,
      hostVerifier: (blob) => known.includes(blob.toString("base64")), ...more,
    });
  });
}

// Calls `object.method(...args, callback)`; the promise of what the callback gets.
const ask = (object, method, ...args) => new Promise((resolve, reject) =>
  object[method](...args, (error, ...values) => (error ? reject(error) : resolve(values[0]))));

const all = (stream) => new Promise((resolve, reject) => {
  const parts = [];
  stream.on("data", (d) => parts.push(d)).on("error", reject).on("end", () => resolve(Buffer.concat(parts)));
});

// Runs a command: what it printed and how it ended.
async function run(client, command, input, options = {}) {
  const stream = await ask(client, "exec", command, options);
  const closed = new Promise((resolve) => stream.on("close", (code, signal) => resolve({ code, signal })));
  const both = [all(stream), all(stream.stderr)];
  stream.end(input);
  const [out, err] = await Promise.all(both);
  return { out, err, ...(await closed) };
}

async function echoes(stream) {
  const got = all(stream);
  stream.end("hello");
  assert.equal(await got, "hello");
}

async function main() {
  const client = await connect("/run/test/user_ed25519");
  let r = await run(client, "echo out; echo err >&2; exit 7");
  assert.deepEqual([`${r.out}`, `${r.err}`, r.code], ["out\n", "err\n", 7]);
  const big = randomBytes(5 << 20);
  r = await run(client, "cat", big);
  assert(r.out.equals(big));
  r = await run(client, "echo $LANG", "", { env: { LANG: "C.UTF-8" } });
  assert.equal(`${r.out}`, "C.UTF-8\n");

  const sleeping = await ask(client, "exec", "echo up; exec sleep 1000");
  const ended = new Promise((resolve) => sleeping.on("exit", (code, signal) => resolve(signal)));
  await new Promise((resolve) => sleeping.once("data", resolve));
  sleeping.signal("TERM");
  assert.match(await ended, /TERM/);

  const shell = await ask(client, "shell", { term: "vt100", rows: 40, cols: 100 });
  const text = all(shell);
  shell.setWindow(41, 101, 0, 0);
  shell.write("stty size; echo $TERM; exit\n");
  assert.match(`${await text}`, /41 101[^]*vt100/);

  const sftp = await ask(client, "sftp");
  await ask(sftp, "writeFile", "n", big);
  assert((await ask(sftp, "readFile", "n")).equals(big));
  assert.equal((await ask(sftp, "stat", "n")).size, big.length);
  assert((await ask(sftp, "readdir", ".")).some((e) => e.filename === "n"));
  await ask(sftp, "unlink", "n");
  sftp.end();

  await echoes(await ask(client, "forwardOut", "127.0.0.1", 1, "127.0.0.1", 7100));
  await echoes(await ask(client, "openssh_forwardOutStreamLocal", path.resolve("echo.sock")));
  await assert.rejects(ask(client, "forwardOut", "127.0.0.1", 1, "127.0.0.1", 7999), { reason: 2 });
  client.on("tcp connection", (info, accept) => { const s = accept(); s.pipe(s); });
  const port = await ask(client, "forwardIn", "127.0.0.1", 0);
  await echoes(net.connect(port, "127.0.0.1"));
  await ask(client, "unforwardIn", "127.0.0.1", port);

  const many = [...Array(10).keys()].map((n) => run(client, `read x; echo \${x}${n}`, "n\n"));
  (await Promise.all(many)).forEach((r, n) => assert.equal(`${r.out}`, `n${n}\n`));
  client.end();

  for (const key of ["rsa", "ecdsa256", "ecdsa384"]) {
    const other = await connect(`/run/test/user_${key}`);
    assert.equal(`${(await run(other, "id -un")).out}`, "ada\n");
    other.end();
  }
  for (const cipher of ["aes128-gcm@openssh.com", "chacha20-poly1305@openssh.com", "aes256-ctr"]) {
    const other = await connect("/run/test/user_ed25519", { algorithms: { cipher: [cipher] } });
    assert((await run(other, "cat", big)).out.equals(big));
    other.end();
  }
  await assert.rejects(connect("/run/test/stranger"), { level: "client-authentication" });
}

main().then(() => process.exit(0), (error) => { console.error(error); process.exit(1); });
