//! The load: a Go program (benches/peers/go-sshd/load) that holds or bursts connections, the same for every server; or simulated nodes.
//! It is told a line and answers with numbers.

use super::cluster::Cluster;
use crate::bench::Bench;
use crate::shell::{Result, cargo, run};
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

/// One client process.
pub struct Load {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Load {
    /// Starts it: the program and its arguments.
    pub fn start(mut command: Command) -> Result<Load> {
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|e| format!("{}: {e}", command.get_program().display()))?;
        let (input, output) = (child.stdin.take(), child.stdout.take());
        Ok(Load {
            child,
            input: input.ok_or("no stdin")?,
            output: BufReader::new(output.ok_or("no stdout")?),
        })
    }

    /// The simulated nodes of `bench-fleet`, which join this cluster; with words of its own behind.
    pub fn fleet(bench: &Bench, cluster: &Cluster, words: &[&str]) -> Result<Load> {
        let mut build = cargo();
        build.args(["build", "--release", "--package", "fleetgate-benches"]);
        run(build.args(["--features", "fleet", "--bin", "bench-fleet"]))?;
        let mut command = Command::new(bench.programs.join("bench-fleet"));
        command.arg(format!("127.0.0.1:{}", cluster.port));
        command
            .arg(cluster.at.join("token"))
            .arg(cluster.at.join(".fleetgate"));
        command.args(words);
        Load::start(command)
    }

    /// One line; the answer is waited for with [`Load::answer`].
    pub fn tell(&mut self, line: &str) -> Result {
        writeln!(self.input, "{line}").map_err(|e| format!("the load does not listen: {e}"))
    }

    /// The numbers of the answer.
    pub fn answer(&mut self) -> Result<Vec<f64>> {
        let mut line = String::new();
        self.output
            .read_line(&mut line)
            .map_err(|e| format!("the load does not answer: {e}"))?;
        numbers(&line).ok_or_else(|| "the load ended: see its line above".to_owned())
    }

    /// Both.
    pub fn ask(&mut self, line: &str) -> Result<Vec<f64>> {
        self.tell(line)?;
        self.answer()
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn numbers(line: &str) -> Option<Vec<f64>> {
    let numbers: Option<Vec<f64>> = line.split_whitespace().map(|n| n.parse().ok()).collect();
    numbers.filter(|n| !n.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_numbers() {
        assert_eq!(numbers("1 2.5 0\n"), Some(vec![1.0, 2.5, 0.0]));
        assert_eq!(numbers(""), None);
        assert_eq!(numbers("1 x\n"), None);
    }
}
