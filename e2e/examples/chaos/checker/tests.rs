//! Hand-made histories: one that is good, and one per rule that is not.

use serde_json::json;

use super::*;
use crate::journal::{DeliveredReport, Incarnation};

const A: Incarnation = Incarnation { replica: 0, run: 1 };
const B: Incarnation = Incarnation { replica: 1, run: 1 };
const SECOND: Micros = 1_000_000;

#[derive(Default)]
struct History {
    events: Vec<(u64, HistoryEvent)>,
    audit: Vec<AuditedWrite>,
    records: Records,
    deleted: BTreeSet<String>,
}

impl History {
    /// A node with two cpus that lends one, and A holds the Lease.
    fn new() -> Self {
        let mut history = Self::default();
        history.event(HistoryEvent::Node {
            name: "n".into(),
            cpu: 2_000,
            pods: 3,
            group: "x".into(),
        });
        history.report(1_000, A, SECOND);
        history.lease(A, 10 * SECOND);
        history
    }

    fn event(&mut self, event: HistoryEvent) -> u64 {
        let revision = u64::try_from(self.events.len()).unwrap() + 1;
        self.events.push((revision, event));
        revision
    }

    fn report(&mut self, amount: i64, to: Incarnation, at: Micros) {
        let (node, amount) = ("n".to_owned(), amount * 1_000);
        let revision = self.event(HistoryEvent::Report {
            node: node.clone(),
            amount,
        });
        self.records.reports.push(DeliveredReport {
            to,
            at,
            node,
            revision,
        });
    }

    fn lease(&mut self, by: Incarnation, at: Micros) {
        let (holder, renewed) = (by.to_string(), at.to_string());
        let body = json!({"spec": {"holderIdentity": holder, "renewTime": renewed}});
        self.write(by, at, "/leases/l", body);
        self.event(HistoryEvent::Lease { holder, renewed });
    }

    fn write(&mut self, by: Incarnation, at: Micros, path: &str, body: Value) -> u64 {
        let id = u64::try_from(self.records.writes.len()).unwrap() + 1;
        self.records.writes.push(SentWrite {
            id,
            by,
            sent: at,
            forwarded: at,
            answered: Some(at + 1_000),
            path: path.to_owned(),
            body,
        });
        id
    }

    fn pod(&self, name: &str, cpu: i64, reclaimed: i64) -> StoredPod {
        StoredPod {
            name: name.to_owned(),
            uid: format!("uid-{name}"),
            cpu,
            reclaimed: reclaimed * 1_000,
            ..StoredPod::default()
        }
    }

    fn create(&mut self, pod: &StoredPod) {
        self.event(HistoryEvent::Pod(pod.clone()));
    }

    fn bind(&mut self, pod: &StoredPod, by: Incarnation, at: Micros) {
        let body = json!({"metadata": {"uid": pod.uid}, "target": {"name": "n"}});
        let id = self.write(by, at, &format!("/pods/{}/binding", pod.name), body);
        self.audit.push(AuditedWrite {
            id,
            verb: "create".into(),
            resource: "pods/binding".into(),
            name: pod.name.clone(),
            code: 201,
            uid: Some(pod.uid.clone()),
        });
        let node = "n".to_owned();
        self.event(HistoryEvent::Pod(StoredPod {
            node,
            ..pod.clone()
        }));
    }

    fn place(&mut self, name: &str, cpu: i64, reclaimed: i64, at: Micros) -> StoredPod {
        let pod = self.pod(name, cpu, reclaimed);
        self.create(&pod);
        self.bind(&pod, A, at);
        pod
    }

    fn broken(&self) -> Vec<&'static str> {
        let (_, violations) = check(&Evidence {
            history: &self.events,
            audit: &self.audit,
            records: &self.records,
            deleted: &self.deleted,
            lease_duration: 6 * SECOND,
        });
        violations.iter().map(|violation| violation.rule).collect()
    }
}

#[test]
fn a_good_history_breaks_no_rule() {
    let mut history = History::new();
    let first = history.place("p", 1_500, 0, 11 * SECOND);
    history.place("q", 0, 1_000, 11 * SECOND);
    // Its place is free again.
    history.deleted.insert(first.uid);
    history.event(HistoryEvent::PodDeleted("p".into()));
    history.place("r", 2_000, 0, 12 * SECOND);
    assert_eq!(history.broken(), [""; 0]);
}

#[test]
fn a_node_that_is_too_full_is_found() {
    let mut history = History::new();
    history.place("p", 1_500, 0, 11 * SECOND);
    history.place("q", 501, 0, 11 * SECOND);
    assert_eq!(history.broken(), ["overcommit"]);
    let mut history = History::new();
    for name in ["p", "q", "r", "s"] {
        history.place(name, 1, 0, 11 * SECOND);
    }
    assert_eq!(history.broken(), ["overcommit"]);
}

#[test]
fn a_report_that_the_scheduler_knew_counts_and_one_on_its_way_does_not() {
    for (delivered, want) in [
        (SECOND, vec!["reclaimed overcommit"]),
        (10 * SECOND, vec![]),
    ] {
        let mut history = History::new();
        history.report(400, A, delivered);
        history.place("p", 0, 1_000, 11 * SECOND);
        assert_eq!(history.broken(), want, "delivered at {delivered}");
    }
}

#[test]
fn a_second_bind_is_found() {
    let mut history = History::new();
    let pod = history.place("p", 1, 0, 11 * SECOND);
    let node = "m".to_owned();
    history.event(HistoryEvent::Pod(StoredPod { node, ..pod }));
    assert_eq!(history.broken(), ["bound twice"]);
    let mut history = History::new();
    let pod = history.place("p", 1, 0, 11 * SECOND);
    history.bind(&pod, A, 11 * SECOND);
    assert_eq!(history.broken(), ["bound twice"]);
}

#[test]
fn a_bind_without_uid_is_found() {
    let mut history = History::new();
    history.place("p", 1, 0, 11 * SECOND);
    history.audit[0].uid = Some(String::new());
    assert_eq!(history.broken(), ["uid"]);
}

#[test]
fn a_node_that_the_pod_does_not_select_is_found() {
    let mut history = History::new();
    let mut pod = history.pod("p", 1, 0);
    pod.group = "y".into();
    history.create(&pod);
    history.bind(&pod, A, 11 * SECOND);
    assert_eq!(history.broken(), ["placement"]);
}

#[test]
fn writes_without_the_lease_are_found() {
    // B never had it.
    let mut history = History::new();
    let pod = history.pod("p", 1, 0);
    history.create(&pod);
    history.bind(&pod, B, 11 * SECOND);
    assert_eq!(history.broken(), ["Lease"]);
    // A did not renew it.
    let mut history = History::new();
    history.place("p", 1, 0, 17 * SECOND);
    assert_eq!(history.broken(), ["Lease"]);
    // B has it since.
    let mut history = History::new();
    history.lease(B, 12 * SECOND);
    history.place("p", 1, 0, 13 * SECOND);
    assert_eq!(history.broken(), ["Lease"]);
    // A had it when it sent this.
    let mut history = History::new();
    history.lease(B, 12 * SECOND);
    history.place("p", 1, 0, 11 * SECOND);
    assert_eq!(history.broken(), [""; 0]);
}

#[test]
fn a_pod_that_vanishes_is_found() {
    let mut history = History::new();
    history.place("p", 1, 0, 11 * SECOND);
    history.event(HistoryEvent::PodDeleted("p".into()));
    assert_eq!(history.broken(), ["lost"]);
    // A victim does not vanish, unless nothing is more urgent.
    for (priority, want) in [(0, vec![]), (URGENT_PRIORITY, vec!["lost"])] {
        let mut history = History::new();
        let mut pod = history.pod("p", 1, 0);
        pod.priority = priority;
        history.create(&pod);
        let body = json!({"preconditions": {"uid": pod.uid}});
        history.write(A, 11 * SECOND, "/pods/p", body);
        history.event(HistoryEvent::PodDeleted("p".into()));
        assert_eq!(history.broken(), want);
    }
}
