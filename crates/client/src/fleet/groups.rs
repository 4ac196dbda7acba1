//! Nodes of which the same is to be told, together: what they said is kept once.

use super::{End, NodeResult};
use crate::ssh::capture::Output;
use std::cmp::Reverse;
use std::collections::HashMap;
use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;

/// Nodes that ended alike and said the same.
#[derive(Debug)]
pub struct Group {
    /// Their names, in order.
    pub nodes: Vec<String>,
    /// How they ended.
    pub end: End,
    /// What they said.
    pub output: Output,
}

/// All groups, as far as they are known.
#[derive(Default)]
pub struct Groups {
    groups: Vec<Group>,
    /// By the hash of what is the same, which nobody outside can foresee.
    places: HashMap<u64, Vec<usize>>,
    hashes: RandomState,
}

impl Groups {
    /// One node more.
    pub fn add(&mut self, node: NodeResult) {
        let NodeResult {
            node, end, output, ..
        } = node;
        let same = (&end, &output.stdout, &output.stderr, output.cut);
        let alike = self.places.entry(self.hashes.hash_one(same)).or_default();
        let groups = &mut self.groups;
        let is_it = |at: &&usize| {
            let group = &groups[**at];
            group.end == end && is_same(&group.output, &output)
        };
        match alike.iter().find(is_it) {
            Some(at) => groups[*at].nodes.push(node),
            None => {
                alike.push(groups.len());
                groups.push(Group {
                    nodes: vec![node],
                    end,
                    output,
                });
            }
        }
    }

    /// In the order in which they are told: what went well first, then what most nodes have.
    #[must_use]
    pub fn sorted(self) -> Vec<Group> {
        let mut groups = self.groups;
        for group in &mut groups {
            group.nodes.sort();
        }
        groups.sort_by(|a, b| {
            let rank = |g: &Group| (!g.end.is_good(), Reverse(g.nodes.len()));
            rank(a).cmp(&rank(b)).then_with(|| a.nodes.cmp(&b.nodes))
        });
        groups
    }
}

fn is_same(one: &Output, other: &Output) -> bool {
    one.stdout == other.stdout && one.stderr == other.stderr && one.cut == other.cut
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ssh::capture::Room;
    use std::time::Duration;

    #[test]
    fn equal_ends_with_equal_outputs_are_one_group_and_failures_are_last() {
        let room = Room::new(1 << 20);
        let mut groups = Groups::default();
        for (node, end, stdout, stderr) in [
            ("web3", End::Exited(0), "a", ""),
            ("web1", End::Exited(0), "b", ""),
            ("db1", End::Exited(1), "a", ""),
            ("db2", End::Exited(1), "a", ""),
            ("db3", End::Exited(1), "a", ""),
            ("web2", End::Exited(0), "a", ""),
            ("web4", End::Exited(0), "", "a"),
            ("web5", End::NotBegun("x".into()), "", ""),
            ("web6", End::Refused("x".into()), "", ""),
        ] {
            let mut output = Output::new(&room);
            output.stdout.extend_from_slice(stdout.as_bytes());
            output.stderr.extend_from_slice(stderr.as_bytes());
            groups.add(NodeResult {
                node: node.into(),
                end,
                output,
                time: Duration::ZERO,
            });
        }
        let told: Vec<String> = groups.sorted().into_iter().map(|g| g.nodes.join(" ")).collect();
        assert_eq!(told, ["web2 web3", "web1", "web4", "db1 db2 db3", "web5", "web6"]);
    }
}
