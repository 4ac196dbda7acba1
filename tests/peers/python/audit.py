"""Holds what ssh-audit found to the list of what is known: argv FOUND.json LIST SUBJECT.

A line of the list is a kind, an algorithm, and after `#` the reason. What is found and not listed is an error, and so
is a line that nothing was found for. OpenSSH's own server is the control: there something unlisted has to be found.
"""
import json
import sys

with open(sys.argv[1]) as f:
    said = f.read()
if not said.startswith("{"):
    sys.exit("ssh-audit found nothing: " + said)
found = json.loads(said)
with open(sys.argv[2]) as f:
    lines = [line.split("#")[0].split() for line in f]
listed = {tuple(line) for line in lines if line}

findings = {}
for kind in ("kex", "key", "enc", "mac"):
    for algorithm in found[kind]:
        notes = algorithm.get("notes", {})
        said = notes.get("fail", []) + notes.get("warn", [])
        if said:
            findings[kind, algorithm["algorithm"]] = said
for cve in found.get("cves", []):
    findings["cve", cve["name"]] = [cve["description"]]

unlisted = {name: said for name, said in findings.items() if name not in listed}
if sys.argv[3] == "Sshd":
    sys.exit(None if unlisted else "nothing was found where something is: does ssh-audit work?")
stale = listed - set(findings)
for (kind, name), said in unlisted.items():
    print("found:", kind, name, "; ".join(said))
for name in stale:
    print("listed, but not found:", *name)
sys.exit(1 if unlisted or stale else 0)
