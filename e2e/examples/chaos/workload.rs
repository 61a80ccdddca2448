//! What happens in the cluster meanwhile: pods come, go and come back under the same name with another spec, urgent pods
//! preempt others, and nodes lend more and less.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::Result;
use e2e::{Api, Kubeconfig};
use serde_json::{Value, json};

use crate::cluster::{GROUP, GROUPS, PODS, RECLAIMED, URGENT, lend, nodes};
use crate::plan::Dice;
use crate::takeover::{self, Takeover};

/// Between two changes.
const PAUSE: Duration = Duration::from_millis(60);
/// After a change that the API server did not accept.
const LONGER_PAUSE: Duration = Duration::from_millis(200);
/// Names of pods of each kind.
const SERVICES: u64 = 24;
const JOBS: u64 = 30;
const PREEMPTORS: u64 = 6;

/// How often each change was made.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Changes {
    pub(crate) created: u64,
    pub(crate) recreated: u64,
    pub(crate) grown: u64,
    pub(crate) shrunk: u64,
}

pub(crate) struct Workload {
    pub(crate) api: Api,
    dice: Dice,
    /// Uids of the pods that it deleted.
    pub(crate) deleted: BTreeSet<String>,
    pub(crate) changes: Changes,
    /// What nodes lend.
    lent: Vec<(String, u64)>,
}

impl Workload {
    pub(crate) fn new(admin: &Kubeconfig, seed: u64) -> Result<Self> {
        Ok(Self {
            api: Api::new(admin)?,
            dice: Dice::new(seed),
            deleted: BTreeSet::new(),
            changes: Changes::default(),
            lent: nodes().map(|node| (node, 3_000)).collect(),
        })
    }

    pub(crate) fn run(&mut self, stopped: &AtomicBool, takeover: &Takeover) {
        while !stopped.load(Ordering::Acquire) {
            let changed = match takeover.due() {
                Some(phase) => takeover::enter(phase, self).map(|()| takeover.reached(phase)),
                None if takeover.is_under_way() => Ok(()),
                None => self.change(),
            };
            // A server that is down refuses a change; the next one is tried later.
            std::thread::sleep(if changed.is_ok() { PAUSE } else { LONGER_PAUSE });
        }
    }

    fn change(&mut self) -> Result<()> {
        let group = self.dice.pick(&GROUPS);
        match self.dice.between(0, 19) {
            0..=9 => {
                let name = format!("service-{}", self.dice.between(0, SERVICES - 1));
                let cpu = 500 * self.dice.between(1, 4);
                self.replace(&name, &service(&name, group, cpu, false))
            }
            10..=14 => {
                let name = format!("job-{}", self.dice.between(0, JOBS - 1));
                let amount = 500 * self.dice.between(1, 3);
                self.replace(&name, &job(&name, amount))
            }
            15 => {
                let name = format!("urgent-{}", self.dice.between(0, PREEMPTORS - 1));
                self.replace(&name, &service(&name, group, 2_000, true))
            }
            _ => {
                let count = u64::try_from(self.lent.len()).unwrap_or(1);
                let index = usize::try_from(self.dice.between(0, count - 1)).unwrap_or(0);
                let amount = 500 * self.dice.between(0, 6);
                self.lend(index, amount)
            }
        }
    }

    /// Sets what a node lends.
    pub(crate) fn lend(&mut self, index: usize, millis: u64) -> Result<()> {
        let (node, before) = self.lent[index].clone();
        lend(&self.api, &node, millis)?;
        self.lent[index].1 = millis;
        self.changes.grown += u64::from(millis > before);
        self.changes.shrunk += u64::from(millis < before);
        Ok(())
    }

    pub(crate) fn lend_all(&mut self, millis: u64) -> Result<()> {
        (0..self.lent.len()).try_for_each(|index| self.lend(index, millis))
    }

    /// Deletes the pod of this name, if there is one, and creates another at once.
    fn replace(&mut self, name: &str, pod: &Value) -> Result<()> {
        let old = self.api.get(&format!("{PODS}/{name}"));
        let is_new = match old {
            Ok(old) => {
                self.delete(&old)?;
                false
            }
            Err(error) if format!("{error:#}").contains("not found") => true,
            Err(error) => return Err(error),
        };
        self.create(pod)?;
        self.changes.recreated += u64::from(!is_new);
        Ok(())
    }

    pub(crate) fn create(&mut self, pod: &Value) -> Result<()> {
        self.api.create(pod)?;
        self.changes.created += 1;
        Ok(())
    }

    pub(crate) fn delete(&mut self, pod: &Value) -> Result<()> {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let (name, uid) = (
            text(&pod["metadata"]["name"]),
            text(&pod["metadata"]["uid"]),
        );
        // Before: the answer may get lost.
        self.deleted.insert(uid.clone());
        let deleted = self.api.delete_uid(&format!("{PODS}/{name}"), &uid);
        match deleted {
            // A scheduler may have evicted it.
            Err(error) if !format!("{error:#}").contains("not found") => Err(error),
            _ => Ok(()),
        }
    }
}

/// A pod on native capacity of one group of nodes.
pub(crate) fn service(name: &str, group: &str, cpu: u64, urgent: bool) -> Value {
    let mut pod = pod(name, "cpu", &format!("{cpu}m"));
    pod["spec"]["nodeSelector"] = json!({GROUP: group});
    if urgent {
        pod["spec"]["priorityClassName"] = URGENT.into();
    }
    pod
}

/// A pod on what nodes lend.
pub(crate) fn job(name: &str, amount: u64) -> Value {
    let mut pod = pod(name, RECLAIMED, &amount.to_string());
    pod["metadata"]["annotations"] = json!({"katalyst.kubewharf.io/qos_level": "reclaimed_cores"});
    pod
}

fn pod(name: &str, resource: &str, amount: &str) -> Value {
    let amounts = json!({resource: amount});
    let container =
        json!({"name": "c", "image": "i", "resources": {"requests": amounts, "limits": amounts}});
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name},
        "spec": {"schedulerName": "tidepool", "terminationGracePeriodSeconds": 0, "containers": [container]}})
}
