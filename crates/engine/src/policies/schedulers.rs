//! Which schedulers run, and what to write on pods whose scheduler does not.
//!
//! A scheduler registers with the Lease that it holds: an annotation lists its names. A Lease counts while it changes, on the
//! clock of the observer; the times that are written on it do not matter. `default-scheduler` is always registered, because
//! kube-scheduler has no such annotation.
//!
//! Users who may write Leases in a namespace could register any name there. So a Lease is believed only in [`OWN_NAMESPACES`],
//! where only administrators and components write Leases, and in the namespaces that the administrator names.
//!
//! Time is the duration since the observer started.

mod names;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::model::Name;
pub use names::{
    DEFAULT_SCHEDULER, LeaseNames, is_scheduler_name, join_names, read_names, read_registered,
    unknown_scheduler,
};
use names::{MOST_OF_NAMESPACE, MOST_REGISTERED};

/// The namespaces whose Leases always register schedulers: only administrators and components write there.
pub const OWN_NAMESPACES: [&str; 2] = ["kube-system", "tidepool-system"];

/// The reason of the event about a pod whose scheduler does not run.
pub const NO_SUCH_SCHEDULER: &str = "NoSuchScheduler";
/// The reason of its condition PodScheduled.
pub const SCHEDULER_NOT_FOUND: &str = "SchedulerNotFound";

/// Lease durations beyond this count as this: a name must not stay after its scheduler ended.
const LONGEST_LEASE: Duration = Duration::from_secs(300);
/// The duration of a Lease that has none; kube-scheduler's default.
const USUAL_LEASE: Duration = Duration::from_secs(15);
/// After the duration of the Lease, since a renewal takes its time to be seen; and after its release, until another replica
/// takes it.
const GRACE: Duration = Duration::from_secs(5);

/// Namespaces with Leases that do not count; more are not named.
const MOST_NAMESPACES_NAMED: usize = 20;
/// Leases that are known in each of these namespaces.
const MOST_LEASES_KNOWN: usize = 100;

/// A Lease that names schedulers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SchedulerLease {
    /// Its resource version: another one is a renewal.
    pub version: Name,
    /// Empty for a Lease that was released.
    pub holder: String,
    pub duration: Option<Duration>,
    pub names: LeaseNames,
}

/// A pod without a node and without the condition PodScheduled: no scheduler has looked at it yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnseenPod {
    pub namespace: Name,
    pub name: Name,
    pub uid: Name,
    pub version: Name,
    pub scheduler: Name,
}

/// All that is observed: Leases by NAMESPACE/NAME, and pods.
#[derive(Debug, Default)]
pub struct SchedulerRegistry {
    /// The namespaces whose Leases count, beside [`OWN_NAMESPACES`].
    namespaces: BTreeSet<Name>,
    leases: BTreeMap<Name, Tracked<SchedulerLease>>,
    /// Other namespaces with Leases that name a scheduler.
    ignored: BTreeMap<Name, IgnoredLeases>,
    /// By scheduler name, then by uid.
    pods: BTreeMap<Name, BTreeMap<Name, Tracked<UnseenPod>>>,
    /// The scheduler name of each pod, by uid.
    schedulers: BTreeMap<Name, Name>,
}

/// Those of one namespace. It is forgotten with the last of them, so that it does not take the place of another namespace.
#[derive(Debug)]
struct IgnoredLeases {
    /// It is in the fault, and stays there: users who replace it must not repeat the fault.
    named: Name,
    /// At most [`MOST_LEASES_KNOWN`]. Another one is known when it is renewed.
    known: BTreeSet<Name>,
}

#[derive(Debug)]
struct Tracked<T> {
    object: T,
    /// A Lease: when it last changed. A pod: when it was first seen.
    at: Duration,
}

/// What is to be written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RegistryPlan {
    /// The names of all schedulers that run, sorted.
    pub names: Vec<Name>,
    /// Pods that wait for a scheduler that does not run, with the message for each.
    pub waiting: Vec<(UnseenPod, String)>,
    /// Faults of Leases, one sentence each.
    pub faults: Vec<String>,
}

impl SchedulerRegistry {
    /// Leases of these namespaces count, too.
    pub fn believing<'a>(namespaces: impl IntoIterator<Item = &'a str>) -> Self {
        Self {
            namespaces: namespaces.into_iter().map(Name::from).collect(),
            ..Self::default()
        }
    }

    pub fn set_lease(&mut self, key: Name, lease: SchedulerLease, now: Duration) {
        let namespace = namespace_of(&key);
        // Believed, because the administrator decides who writes Leases in these namespaces.
        if !OWN_NAMESPACES.contains(&namespace) && !self.namespaces.contains(namespace) {
            self.ignore(Name::from(namespace), key);
            return;
        }
        let known = self.leases.get(&key);
        let at = match known {
            Some(known) if known.object.version == lease.version => known.at,
            _ => now,
        };
        self.leases.insert(key, Tracked { object: lease, at });
    }

    pub fn delete_lease(&mut self, key: &str) {
        self.leases.remove(key);
        let namespace = namespace_of(key);
        if let Some(ignored) = self.ignored.get_mut(namespace) {
            ignored.known.remove(key);
            if ignored.known.is_empty() {
                self.ignored.remove(namespace);
            }
        }
    }

    pub fn set_pod(&mut self, pod: UnseenPod, now: Duration) {
        let (uid, scheduler) = (pod.uid.clone(), pod.scheduler.clone());
        self.schedulers.insert(uid.clone(), scheduler.clone());
        let pods = self.pods.entry(scheduler).or_default();
        let at = pods.get(&uid).map_or(now, |known| known.at);
        pods.insert(uid, Tracked { object: pod, at });
    }

    /// The pod is bound or gone, or a scheduler has looked at it.
    pub fn delete_pod(&mut self, uid: &str) {
        let Some(scheduler) = self.schedulers.remove(uid) else {
            return;
        };
        if let Some(pods) = self.pods.get_mut(&scheduler) {
            pods.remove(uid);
            if pods.is_empty() {
                self.pods.remove(&scheduler);
            }
        }
    }

    /// The pod cannot be written now: it is planned again as if it were first seen now.
    pub fn postpone_pod(&mut self, uid: &str, now: Duration) {
        let scheduler = self.schedulers.get(uid);
        let pods = scheduler.and_then(|scheduler| self.pods.get_mut(scheduler));
        if let Some(pod) = pods.and_then(|pods| pods.get_mut(uid)) {
            pod.at = now;
        }
    }

    /// Pods of a scheduler that does not run are named `patience` after they were first seen, at most `most` of them.
    pub fn plan(&self, patience: Duration, most: usize, now: Duration) -> RegistryPlan {
        let mut names = BTreeSet::from([Name::from(DEFAULT_SCHEDULER)]);
        let mut served_by: BTreeMap<&Name, Vec<&Name>> = BTreeMap::new();
        let mut faults = self.ignored_faults();
        let mut of_namespace: BTreeMap<&str, BTreeSet<&Name>> = BTreeMap::new();
        let mut left_out: BTreeMap<&str, usize> = BTreeMap::new();
        for (key, lease) in self.own_first() {
            let namespace = namespace_of(key);
            for name in &lease.object.names.invalid {
                faults.push(format!(
                    "Lease {key}: annotation tidepool.io/scheduler-names has {name:?}, which is not a valid scheduler name"
                ));
            }
            let end = lease.at + lease.object.lifetime();
            if end <= now {
                continue;
            }
            let own = of_namespace.entry(namespace).or_default();
            for name in &lease.object.names.valid {
                let is_full = own.len() >= MOST_OF_NAMESPACE && !own.contains(name);
                if is_full || names.len() >= MOST_REGISTERED && !names.contains(name) {
                    *left_out.entry(namespace).or_default() += 1;
                    continue;
                }
                own.insert(name);
                names.insert(name.clone());
                if !lease.object.holder.is_empty() {
                    served_by.entry(name).or_default().push(key);
                }
            }
        }
        for (namespace, count) in left_out {
            faults.push(format!(
                "{count} scheduler names on Leases of namespace {namespace} are ignored: at most {MOST_OF_NAMESPACE} of a namespace and {MOST_REGISTERED} in all are registered"
            ));
        }
        for (name, leases) in served_by.into_iter().filter(|(_, all)| all.len() > 1) {
            let leases: Vec<&str> = leases.into_iter().map(|it| &**it).collect();
            faults.push(format!(
                "schedulers on Leases {} all serve the name {name}: they compete for its pods",
                leases.join(" and ")
            ));
        }
        let mut waiting = Vec::new();
        for (scheduler, pods) in self.pods.iter().filter(|(name, _)| !names.contains(*name)) {
            let message = unknown_scheduler(scheduler, names.iter().map(|it| &**it));
            let due = |pod: &&Tracked<UnseenPod>| pod.at.saturating_add(patience) <= now;
            let left = most.saturating_sub(waiting.len());
            let pods = pods.values().filter(due).take(left);
            waiting.extend(pods.map(|pod| (pod.object.clone(), message.clone())));
        }
        RegistryPlan {
            names: names.into_iter().collect(),
            waiting,
            faults,
        }
    }
}

impl SchedulerRegistry {
    /// The cluster's own schedulers are registered before the limit is reached.
    fn own_first(&self) -> impl Iterator<Item = (&Name, &Tracked<SchedulerLease>)> {
        let is_own = |(key, _): &(&Name, &Tracked<_>)| OWN_NAMESPACES.contains(&namespace_of(key));
        let own = self.leases.iter().filter(is_own);
        own.chain(self.leases.iter().filter(move |it| !is_own(it)))
    }

    /// Remembers a Lease of a namespace whose Leases do not count.
    fn ignore(&mut self, namespace: Name, key: Name) {
        if let Some(ignored) = self.ignored.get_mut(&namespace) {
            if ignored.known.len() < MOST_LEASES_KNOWN {
                ignored.known.insert(key);
            }
        } else if self.ignored.len() < MOST_NAMESPACES_NAMED {
            let ignored = IgnoredLeases {
                named: key.clone(),
                known: BTreeSet::from([key]),
            };
            self.ignored.insert(namespace, ignored);
        }
    }

    /// One sentence for each namespace whose Leases do not count.
    fn ignored_faults(&self) -> Vec<String> {
        let sentence = |(namespace, ignored): (&Name, &IgnoredLeases)| {
            let key = &ignored.named;
            format!(
                "Leases of namespace {namespace} register no scheduler, such as Lease {key}: pass --scheduler-namespaces={namespace} to `tidepool controllers` if only schedulers write Leases there"
            )
        };
        self.ignored.iter().map(sentence).collect()
    }
}

/// That of a Lease, whose key is NAMESPACE/NAME.
fn namespace_of(key: &str) -> &str {
    key.split_once('/').map_or("", |(namespace, _)| namespace)
}

impl SchedulerLease {
    /// How long it counts after it changed.
    fn lifetime(&self) -> Duration {
        if self.holder.is_empty() {
            return GRACE;
        }
        let duration = self.duration.unwrap_or(USUAL_LEASE);
        duration.min(LONGEST_LEASE) + GRACE
    }
}

#[cfg(test)]
mod tests;
