//! Which agents are silent, by the Leases that they renew.
//!
//! Silence counts from when the caller saw the Lease change, on the clock of the caller. The time in a Lease is of the
//! node's clock, which may be wrong: it is only compared with the one before.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::model::{Name, Timestamp};

/// Two silent agents never stop the taints: in a small cluster they are a large part.
const FEW: usize = 2;
/// When more than one of so many agents is late, the fault is more likely to be in what the controller sees.
const BRAKE_SHARE: usize = 5;

/// What is known of an agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Liveness {
    /// Its Lease has not changed since the caller began to watch, which is not long ago.
    Unknown,
    Alive,
    /// Its Lease has not changed since then.
    Silent(Timestamp),
}

/// All agents, by node.
#[derive(Debug, Clone, Default)]
pub struct Agents {
    agents: BTreeMap<Name, Agent>,
}

#[derive(Debug, Clone)]
struct Agent {
    /// `renewTime` as it is written.
    renewed: Name,
    /// When the caller saw it change, or saw it first.
    changed: Timestamp,
    /// The caller saw it change.
    is_confirmed: bool,
}

/// All agents at a moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Judgement {
    pub agents: usize,
    pub silent: usize,
    /// Without a renewal for half of the time after which an agent is silent.
    pub late: usize,
    /// Too many are late: no taint is added and no pod is evicted.
    pub brake: bool,
}

impl Agents {
    /// The Lease of the node's agent, as it is now.
    pub fn observe(&mut self, node: Name, renewed: Name, now: Timestamp) {
        let agent = self.agents.entry(node).or_insert_with(|| Agent {
            renewed: renewed.clone(),
            changed: now,
            is_confirmed: false,
        });
        if agent.renewed != renewed {
            *agent = Agent {
                renewed,
                changed: now,
                is_confirmed: true,
            };
        }
    }

    /// The Lease of the node's agent is gone.
    pub fn remove(&mut self, node: &str) {
        self.agents.remove(node);
    }

    pub fn nodes(&self) -> impl Iterator<Item = &Name> {
        self.agents.keys()
    }

    /// None if the node has no Lease.
    pub fn liveness(&self, node: &str, silent_after: Duration, now: Timestamp) -> Option<Liveness> {
        let agent = self.agents.get(node)?;
        Some(match () {
            () if agent.quiet_for(silent_after, now) => Liveness::Silent(agent.changed),
            () if agent.is_confirmed => Liveness::Alive,
            () => Liveness::Unknown,
        })
    }

    /// Counts the agents of the nodes that exist.
    ///
    /// Agents that fall silent together become silent one after the other, because each renews at its own time. So the brake
    /// counts those that are late, before the first of them is silent.
    pub fn judge(
        &self,
        exists: impl Fn(&str) -> bool,
        silent_after: Duration,
        now: Timestamp,
    ) -> Judgement {
        let agents: Vec<&Agent> = self
            .agents
            .iter()
            .filter_map(|(node, agent)| exists(node).then_some(agent))
            .collect();
        let quiet = |time| {
            let quiet = agents.iter().filter(|it| it.quiet_for(time, now));
            quiet.count()
        };
        let late = quiet(silent_after / 2);
        Judgement {
            agents: agents.len(),
            silent: quiet(silent_after),
            late,
            brake: late > FEW && late.saturating_mul(BRAKE_SHARE) > agents.len(),
        }
    }
}

impl Agent {
    fn quiet_for(&self, time: Duration, now: Timestamp) -> bool {
        self.changed.plus(time) <= now
    }
}
