use std::collections::BTreeMap;
use std::time::Duration;

use super::*;
use crate::model::{Labels, Name, Timestamp};

const SILENT_AFTER: Duration = Duration::from_secs(90);
const TIMES: AgentTimes = AgentTimes {
    silent_after: SILENT_AFTER,
    evict_after: Some(Duration::from_secs(600)),
    orphaned_after: Duration::from_secs(30),
};

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_secs(seconds)
}

fn name(index: usize) -> Name {
    format!("n{index}").as_str().into()
}

fn liveness(agents: &Agents, now: i64) -> Option<Liveness> {
    agents.liveness("n0", SILENT_AFTER, at(now))
}

#[test]
fn silence_counts_from_when_the_change_was_seen() {
    let mut agents = Agents::default();
    assert_eq!(liveness(&agents, 0), None);
    // An hour behind, an hour ahead, or no time at all: only that it changes counts.
    agents.observe(name(0), "1999-12-31T23:00:00.000000Z".into(), at(0));
    assert_eq!(liveness(&agents, 89), Some(Liveness::Unknown));
    assert_eq!(liveness(&agents, 90), Some(Liveness::Silent(at(0))));
    agents.observe(name(0), "2100-01-01T00:00:00.000000Z".into(), at(95));
    assert_eq!(liveness(&agents, 95), Some(Liveness::Alive));
    // Another change of the Lease is no renewal.
    agents.observe(name(0), "2100-01-01T00:00:00.000000Z".into(), at(180));
    assert_eq!(liveness(&agents, 184), Some(Liveness::Alive));
    assert_eq!(liveness(&agents, 185), Some(Liveness::Silent(at(95))));
    agents.observe(name(0), "".into(), at(186));
    assert_eq!(liveness(&agents, 186), Some(Liveness::Alive));
    agents.remove("n0");
    assert_eq!(liveness(&agents, 186), None);
}

#[test]
fn more_than_a_fifth_of_the_agents_pull_the_brake() {
    for (case, total, quiet, gone, want) in [
        ("one of one", 1, 1, 0, false),
        ("two of two", 2, 2, 0, false),
        ("three of three", 3, 3, 0, true),
        ("a fifth", 100, 20, 0, false),
        ("more", 100, 21, 0, true),
        ("thirty of a hundred", 100, 30, 0, true),
        ("a node that is gone does not count", 101, 21, 1, false),
        ("nothing is silent", 100, 0, 0, false),
    ] {
        let mut agents = Agents::default();
        for index in 0..total {
            agents.observe(name(index), "1".into(), at(0));
            // Agents renew at different times.
            let renewed = if index < quiet { index as i64 % 10 } else { 80 };
            agents.observe(name(index), "2".into(), at(renewed));
        }
        let gone: Vec<Name> = (0..gone).map(name).collect();
        let exists = |node: &str| !gone.iter().any(|it| **it == *node);
        for now in [90, 95, 100] {
            let judgement = agents.judge(exists, SILENT_AFTER, at(now));
            assert_eq!(judgement.brake, want, "{case} at {now}");
            assert_eq!(judgement.late, quiet - gone.len(), "{case} at {now}");
        }
        let judgement = agents.judge(exists, SILENT_AFTER, at(100));
        assert_eq!(judgement.silent, quiet - gone.len(), "{case}");
    }
}

fn labels(pairs: &[(&str, &str)]) -> Labels {
    pairs.iter().copied().collect()
}

#[test]
fn the_taint_follows_the_agent() {
    let node = NodeMeta {
        uid: "u".into(),
        ..NodeMeta::default()
    };
    let report = |is_tainted| ReportMeta {
        owner: Some("u".into()),
        is_tainted,
        ..ReportMeta::default()
    };
    let silent = Some(Liveness::Silent(at(0)));
    use AgentAction::{EvictReclaimed, Taint, Untaint};
    for (case, agent, is_tainted, brake, now, actions, is_silent) in [
        ("no Lease", None, false, false, 0, vec![], false),
        (
            "alive",
            Some(Liveness::Alive),
            false,
            false,
            0,
            vec![],
            false,
        ),
        ("silent", silent, false, false, 90, vec![Taint], true),
        ("still silent", silent, true, false, 99, vec![], true),
        ("long", silent, true, false, 600, vec![EvictReclaimed], true),
        ("brake", silent, false, true, 600, vec![], false),
        (
            "brake, tainted before",
            silent,
            true,
            true,
            600,
            vec![],
            true,
        ),
        (
            "back",
            Some(Liveness::Alive),
            true,
            false,
            0,
            vec![Untaint],
            false,
        ),
        (
            "back while the brake is on",
            Some(Liveness::Alive),
            true,
            true,
            0,
            vec![Untaint],
            false,
        ),
        (
            "a new leader, tainted",
            Some(Liveness::Unknown),
            true,
            false,
            0,
            vec![],
            true,
        ),
        (
            "a new leader",
            Some(Liveness::Unknown),
            false,
            false,
            0,
            vec![],
            false,
        ),
        (
            "the Lease was removed",
            None,
            true,
            false,
            0,
            vec![Untaint],
            false,
        ),
    ] {
        let report = report(is_tainted);
        let observed = AgentNode {
            node: Ok(&node),
            report: Ok(Some(&report)),
            agent,
            brake,
        };
        let found = plan(&observed, &TIMES, at(now));
        assert_eq!(
            (found.actions, found.is_silent),
            (actions, is_silent),
            "{case}"
        );
    }
    let observed = AgentNode {
        node: Ok(&node),
        report: Err(lifecycle::Unreadable),
        agent: silent,
        brake: false,
    };
    let waiting = plan(&observed, &TIMES, at(100));
    assert_eq!((waiting.actions, waiting.is_silent), (vec![], true));
    assert_eq!(waiting.again, Some(at(600)), "evictions are due");
    let kept = AgentTimes {
        evict_after: None,
        ..TIMES
    };
    assert_eq!(plan(&observed, &kept, at(9000)).actions, []);
}

#[test]
fn a_report_lives_and_ends_with_its_node() {
    let node = NodeMeta {
        uid: "new".into(),
        labels: labels(&[("zone", "a"), ("kind", "gpu")]),
    };
    let report = |owner: Option<&str>, pairs| ReportMeta {
        labels: labels(pairs),
        owner: owner.map(Name::from),
        is_tainted: false,
    };
    let mine = report(Some("new"), &[("zone", "a"), ("kind", "gpu"), ("own", "x")]);
    let older = report(Some("old"), &[("zone", "b"), ("kind", "gpu")]);
    let update = AgentAction::UpdateReport {
        labels: vec![("zone".into(), "a".into())],
        is_owner_new: true,
    };
    let create = AgentAction::CreateReport { is_tainted: false };
    for (case, report, want) in [
        ("a new node", None, vec![create]),
        ("labels are merged", Some(&mine), vec![]),
        ("another node of this name", Some(&older), vec![update]),
    ] {
        let observed = AgentNode {
            node: Ok(&node),
            report: Ok(report),
            agent: None,
            brake: false,
        };
        assert_eq!(plan(&observed, &TIMES, at(0)).actions, want, "{case}");
    }
    use AgentAction::{DeleteLease, DeleteReport};
    for (case, report, agent, now, want, again) in [
        ("waits", Some(&mine), None, 29, vec![], Some(at(30))),
        ("goes", Some(&mine), None, 30, vec![DeleteReport], None),
        (
            "with its Lease",
            Some(&mine),
            Some(Liveness::Alive),
            30,
            vec![DeleteReport, DeleteLease],
            None,
        ),
        (
            "the Lease alone",
            None,
            Some(Liveness::Silent(at(0))),
            30,
            vec![DeleteLease],
            None,
        ),
        ("nothing is left", None, None, 10, vec![], None),
    ] {
        let observed = AgentNode {
            node: Err(at(0)),
            report: Ok(report),
            agent,
            brake: true,
        };
        let found = plan(&observed, &TIMES, at(now));
        assert_eq!((found.actions, found.again), (want, again), "{case}");
    }
}

/// A cluster in steps of 10 s, the time between two renewals.
#[derive(Debug, Clone, Default, PartialEq)]
struct World {
    nodes: BTreeMap<usize, NodeMeta>,
    /// With a version, which every write changes.
    reports: BTreeMap<usize, (u64, ReportMeta)>,
    /// How often each agent has renewed.
    leases: BTreeMap<usize, u64>,
    writes: u64,
}

impl World {
    fn add_node(&mut self, index: usize, generation: u64) {
        let generation = generation.to_string();
        let node = NodeMeta {
            uid: format!("{index}-{generation}").as_str().into(),
            labels: labels(&[("generation", &*generation)]),
        };
        self.nodes.insert(index, node);
    }

    /// As the API server does: a write of an old version fails, and a report goes only if its Node is gone.
    fn carry_out(&mut self, index: usize, action: &AgentAction, seen: Option<u64>) {
        let is_current = self.reports.get(&index).map(|it| it.0) == seen;
        self.writes += 1;
        let (node, version) = (self.nodes.get(&index), self.writes);
        let report = self.reports.get_mut(&index).filter(|_| is_current);
        match (action, node, report) {
            (AgentAction::CreateReport { .. }, Some(node), None) if seen.is_none() => {
                let report = ReportMeta {
                    labels: node.labels.clone(),
                    owner: Some(node.uid.clone()),
                    is_tainted: false,
                };
                self.reports.entry(index).or_insert((version, report));
            }
            (AgentAction::UpdateReport { .. }, Some(node), Some(report)) => {
                report.0 = version;
                report.1.labels = node.labels.clone();
                report.1.owner = Some(node.uid.clone());
            }
            (AgentAction::Taint | AgentAction::Untaint, _, Some(report)) => {
                *report = (version, report.1.clone());
                report.1.is_tainted = *action == AgentAction::Taint;
            }
            (AgentAction::DeleteReport, None, Some(_)) => drop(self.reports.remove(&index)),
            (AgentAction::DeleteLease, None, _) => drop(self.leases.remove(&index)),
            _ => {}
        }
    }
}

/// A process that leads. It sees the cluster as it was some steps ago, and may end at any write.
#[derive(Default)]
struct Leader {
    agents: Agents,
    missing: BTreeMap<usize, Timestamp>,
    view: usize,
}

impl Leader {
    fn work(&mut self, history: &[World], world: &mut World, now: Timestamp, mut writes_left: u32) {
        let seen = &history[self.view];
        for (index, renewals) in &seen.leases {
            let renewed = renewals.to_string();
            self.agents
                .observe(name(*index), renewed.as_str().into(), now);
        }
        for index in 0..NODES {
            if !seen.leases.contains_key(&index) {
                self.agents.remove(&name(index));
            }
        }
        let exists = |node: &str| seen.nodes.keys().any(|it| *name(*it) == *node);
        let brake = self.agents.judge(exists, SILENT_AFTER, now).brake;
        for index in 0..NODES {
            let node = seen.nodes.get(&index);
            let report = seen.reports.get(&index);
            if node.is_some() {
                self.missing.remove(&index);
            }
            let observed = AgentNode {
                node: node.ok_or_else(|| *self.missing.entry(index).or_insert(now)),
                report: Ok(report.map(|it| &it.1)),
                agent: self.agents.liveness(&name(index), SILENT_AFTER, now),
                brake,
            };
            for action in plan(&observed, &TIMES, now).actions {
                if writes_left == 0 {
                    *self = Self {
                        view: self.view,
                        ..Self::default()
                    };
                    return;
                }
                writes_left -= 1;
                world.carry_out(index, &action, report.map(|it| it.0));
            }
        }
    }
}

const NODES: usize = 12;

/// Two processes believe that they lead. Each sees up to a minute of the past, misses what came between, and ends at any
/// write. An agent that renews is never tainted, and in the end the objects are those of the nodes.
#[test]
fn leaders_that_crash_and_see_the_past_converge() {
    for seed in 0..200_u64 {
        let mut state = seed;
        let mut random = |below: u64| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            (state >> 33) % below
        };
        let mut world = World::default();
        let mut leaders = [Leader::default(), Leader::default()];
        let mut history = vec![world.clone()];
        // Two of twelve never stop the taints.
        let silent = [random(4) as usize, 4 + random(4) as usize];
        for step in 0..120_u64 {
            let is_calm = step >= 60;
            let now = at(step as i64 * 10);
            for index in 0..NODES {
                let is_here = world.nodes.contains_key(&index);
                match random(40) {
                    0 if is_here && !is_calm => drop(world.nodes.remove(&index)),
                    1..10 if !is_here && !is_calm => world.add_node(index, step),
                    _ => {}
                }
                // An agent lives with its node; those of `silent` stop after a while.
                let is_silent = silent.contains(&index) && step >= 20;
                if world.nodes.contains_key(&index) && !is_silent {
                    *world.leases.entry(index).or_default() += 1;
                }
            }
            history.push(world.clone());
            for leader in &mut leaders {
                let newest = history.len() - 1;
                let lag = if is_calm { 0 } else { random(7) as usize };
                leader.view = leader.view.max(newest.saturating_sub(lag));
                let writes = if is_calm { u32::MAX } else { random(30) as u32 };
                leader.work(&history, &mut world, now, writes);
            }
            for (index, (_, report)) in &world.reports {
                let is_here = world.nodes.contains_key(index);
                let is_wrong = report.is_tainted && is_here && !silent.contains(index);
                assert!(!is_wrong, "seed {seed}, step {step}: {index} is tainted");
            }
        }
        let here: Vec<usize> = world.nodes.keys().copied().collect();
        let reported: Vec<usize> = world.reports.keys().copied().collect();
        assert_eq!(reported, here, "seed {seed}");
        assert!(
            world.leases.keys().all(|it| here.contains(it)),
            "seed {seed}"
        );
        for (index, (_, report)) in &world.reports {
            let node = &world.nodes[index];
            assert_eq!(
                report.owner.as_ref(),
                Some(&node.uid),
                "seed {seed}: {index}"
            );
            assert_eq!(report.labels, node.labels, "seed {seed}: {index}");
            let is_silent = silent.contains(index) && world.leases.contains_key(index);
            assert_eq!(report.is_tainted, is_silent, "seed {seed}: {index}");
        }
    }
}
