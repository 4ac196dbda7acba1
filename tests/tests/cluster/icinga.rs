//! Icinga 2, Debian's, with the definition of the page about checks: 1,000 services of a node, each checked once a minute.

use super::checks;
use fleetgate_tests::needs_root;

/// The page, with its definition.
const PAGE: &str = include_str!("../../../docs/fast-commands.md");
/// `icinga` runs it.
pub const TOOLS: &str = include_str!("../../scripts/icinga.sh");
const CONFIG: &str = include_str!("../../scripts/icinga.conf");

/// The definition in the page.
fn definition() -> String {
    let (_, rest) = PAGE.split_once("In Icinga 2:\n\n").expect("the definition");
    let lines = rest.lines().take_while(|line| line.starts_with("    "));
    let text: String = lines.map(|line| format!("{}\n", &line[4..])).collect();
    assert!(text.contains("PluginDir + \"/check_fleetgate\""), "{text}");
    text
}

#[test]
fn icinga_runs_a_thousand_services_by_check_fleetgate() {
    needs_root!("a node that serves other accounts");
    let cluster = checks::cluster();
    let config = CONFIG.replace("DEFINITION", &definition());
    std::fs::write("/run/test/icinga.conf", config).expect("written");
    let said = cluster.script(&format!(
        r#"{}{TOOLS}
        begin
        export FLEETGATE_HOME=/run/test/home
        time=60; icinga -C > icinga/log 2>&1 || {{ cat icinga/log >&2; exit 1; }}
        for _ in 1 2 3; do
            rm -f icinga/results* icinga/rest
            time=70; code=0; icinga > icinga/log 2>&1 || code=$?
            [ $code = 137 ] || break
        done
        cat icinga/results* icinga/rest > icinga/all
        awk '$2 != "OK"' icinga/all | head -n 5 >&2
        python3 - <<'END'
lines = [line.split(" ", 4) for line in open("icinga/all", errors="replace")]
assert {{line[1] for line in lines}} == {{"OK"}}, [line for line in lines if line[1] != "OK"][:3]
assert len({{line[0] for line in lines}}) == 1000, len({{line[0] for line in lines}})
assert {{line[4].strip() for line in lines}} == {{"OK - load 15,10,5"}}, lines[0]
for what, column in (("latency", 2), ("execution", 3)):
    times = sorted(float(line[column]) for line in lines)
    print("%s of %d checks: median %.1f ms, p99 %.1f ms" % (what, len(times), times[len(times) // 2] * 1e3, times[len(times) * 99 // 100] * 1e3))
END
        "$F" audit --state cluster --event session_ended --json | grep -c . > told; [ "$(cat told)" -ge 1000 ]"#,
        checks::TOOLS
    ));
    println!("{said}");
}
