//! PostFilter, which runs if no node fits, and the preemption that it may lead to.

use std::collections::BTreeSet;
use std::sync::Arc;

use hashbrown::HashMap;

use super::{Failure, Nomination, Outcome, Scheduler};
use crate::cluster::Cluster;
use crate::model::{Name, Pod, Timestamp};
use crate::scheduling::evaluate::{Diagnosis, Scan};
use crate::scheduling::framework::{Point, PostFilter, Rejection, Status};
use crate::scheduling::hooks::Evaluations;
use crate::scheduling::hooks::PointResult;
use crate::scheduling::preemption::{self, Candidate, PreemptionOutcome, Search, SearchScope};
use crate::scheduling::profile::Profile;

/// The result of PostFilter.
#[derive(Debug, Clone)]
pub struct PostFilterResult {
    /// Messages of plugins, for the end of the pod's message. Empty if there is a candidate.
    pub messages: Vec<String>,
    pub nomination: Nomination,
    /// The node to evict pods from, and the pods.
    pub candidate: Option<Candidate>,
    /// The search for candidates; `None` if no plugin preempts or the pod is not eligible.
    pub search: Option<Search>,
    pub outcome: PreemptionOutcome,
    /// Plugins that ran, by their index in the profile.
    plugins: Vec<usize>,
    /// The last of them failed.
    failed: bool,
}

impl PostFilterResult {
    pub fn message(&self) -> String {
        self.messages.join(", ")
    }

    pub(super) fn candidates_mut(&mut self) -> Option<&mut Vec<Candidate>> {
        let candidates = &mut self.search.as_mut()?.candidates;
        (!candidates.is_empty()).then_some(candidates)
    }

    /// There were candidates, but none is left.
    pub(super) fn give_up(&mut self) {
        self.search = None;
        self.outcome = PreemptionOutcome::NoneAllowed;
        self.nomination = Nomination::Keep;
        self.messages
            .push("preemption: no candidate node for preemption".to_owned());
    }

    /// The answer of an extender is invalid. Like kube-scheduler, drops all other messages.
    pub(super) fn fail(&mut self, text: &str) {
        self.search = None;
        self.nomination = Nomination::Keep;
        self.messages = vec![format!("preemption: {text}")];
        self.outcome = PreemptionOutcome::Failed;
        self.failed = true;
    }

    /// Drops candidates with a victim that the pod must not evict. Compares the pods as they are in the cluster: rewrites
    /// may have shown others.
    pub(super) fn keep_allowed_victims(&mut self, pod: &Pod, cluster: &Cluster) {
        let may_evict = |victim: &Arc<Pod>| {
            let placed = cluster.placed(&victim.uid);
            pod.may_evict(placed.map_or(victim, |placed| &placed.pod))
        };
        if let Some(candidates) = self.candidates_mut() {
            candidates.retain(|candidate| candidate.victims.iter().all(may_evict));
            if candidates.is_empty() {
                self.give_up();
            }
        }
    }

    /// Takes the candidate with the least harm.
    pub(super) fn choose(&mut self, now: Timestamp) {
        let candidates = self.search.as_ref().map(|search| &search.candidates[..]);
        let best = preemption::best(candidates.unwrap_or_default(), now);
        if let Some(&best) = best.first() {
            self.nomination = Nomination::Set(best.node.clone());
            self.candidate = Some(best.clone());
            self.outcome = PreemptionOutcome::Found;
            self.messages.clear();
        }
    }

    pub(super) fn evaluations(&self) -> Evaluations {
        self.plugins.iter().map(|index| (*index, 1)).collect()
    }

    pub(super) fn point_result(&self) -> PointResult {
        match &self.candidate {
            Some(_) => PointResult::Success,
            None if self.failed => PointResult::error(self.message()),
            None => PointResult::Rejected(Rejection::unschedulable(self.message())),
        }
    }
}

/// Runs the plugins of PostFilter in their order.
pub(super) fn run_plugins(
    scan: &Scan,
    diagnosis: &Diagnosis,
    scope: SearchScope,
    now: Timestamp,
) -> PostFilterResult {
    let (cluster, profile, pod) = (scan.cluster(), scan.profile(), scan.pod());
    let mut result = PostFilterResult {
        messages: Vec::new(),
        // Without such a plugin a nomination has no use.
        nomination: Nomination::Clear,
        candidate: None,
        search: None,
        outcome: PreemptionOutcome::NotTried,
        plugins: Vec::new(),
        failed: false,
    };
    let pre_filtered = pre_filtered(profile, diagnosis);
    for &index in profile.at(Point::PostFilter) {
        result.nomination = Nomination::Keep;
        result.plugins.push(index);
        let plugin = &profile.plugins()[index].plugin;
        match plugin.post_filter(pod, cluster.catalog(), pre_filtered.contains(&index)) {
            PostFilter::Nothing(text) if text.is_empty() => {}
            PostFilter::Nothing(text) => result.messages.push(text.into_owned()),
            PostFilter::Failed(text) => {
                result.messages = vec![text.into_owned()];
                result.failed = true;
                break;
            }
            PostFilter::Preempt => {
                if let Err(why) = preemption::eligible(cluster, pod, diagnosis) {
                    let text = why.message();
                    result.messages.push(format!("preemption: {text}"));
                    result.outcome = why.into();
                    continue;
                }
                let search = preemption::search(scan, diagnosis, scope, now);
                if let Some(text) = search.failure() {
                    result.fail(&text);
                    break;
                }
                let found_none = search.candidates.is_empty();
                if found_none {
                    let text = preemption::message(diagnosis, &search, scan);
                    result.messages.push(format!("preemption: {text}"));
                    result.nomination = Nomination::Clear;
                    result.outcome = PreemptionOutcome::NoCandidate;
                }
                result.search = Some(search);
                if !found_none {
                    break;
                }
            }
        }
    }
    result
}

/// Plugins that ran at PreFilter: all, unless one ended it.
fn pre_filtered<'p>(profile: &'p Profile, diagnosis: &Diagnosis) -> &'p [usize] {
    let order = profile.at(Point::PreFilter);
    let ended = diagnosis.pre_filter.is_some()
        && diagnosis
            .statuses
            .iter()
            .all(|node| node.status == Status::Unresolvable);
    let last = order
        .iter()
        .rposition(|index| diagnosis.plugins.contains(&profile.plugins()[*index].name));
    match last {
        Some(last) if ended => &order[..=last],
        _ => order,
    }
}

impl Scheduler {
    /// Carries out a preemption. Victims that are not bound yet lose their node at once; the driver evicts the others.
    pub(super) fn preempt(&mut self, failure: Failure, candidate: Candidate, now: Timestamp) {
        let pod = failure.pod.clone();
        let mut victims = Vec::new();
        for victim in candidate.victims {
            let cancelled = match self.binding.get(&victim.uid) {
                Some(binding) if binding.is_waiting() => {
                    Some("waiting on permit for pod: preempted")
                }
                Some(binding) if binding.is_preparing() => Some("preempted by DefaultPreemption"),
                _ => None,
            };
            match cancelled {
                Some(text) => {
                    let failure = Failure::error(victim.clone(), text.to_owned());
                    self.end_and_requeue(&victim.uid, failure, now);
                }
                None if victim.kind.terminating => {}
                None => victims.push(victim),
            }
        }
        let displaced: Vec<_> = self
            .cluster
            .nominated_to(&candidate.node)
            .map(|nominated| nominated.pod.clone())
            .filter(|other| other.priority < pod.priority && pod.may_harm(other))
            .collect();
        for other in &displaced {
            let other = self.nominate(other, &Nomination::Clear);
            self.queue.rewrite(other);
        }
        if let Some(last) = victims.last() {
            self.preempting.begin(&pod.uid, &last.uid);
            self.cluster.set_preempting(&pod.uid, true);
        }
        if !self.wait_again(&failure, &victims, None, now) {
            self.preemption_over(&pod.uid);
            return;
        }
        self.ready.push_back(Outcome::Preempt {
            failure,
            node: candidate.node,
            victims,
            displaced,
        });
    }

    /// The pod no longer waits for its victims.
    pub(super) fn preemption_over(&mut self, uid: &Name) {
        self.preempting.end(uid);
        self.cluster.set_preempting(uid, false);
    }

    /// A pod terminates or is gone. The preemptor whose last victim it is waits for its capacity only.
    pub(super) fn victim_leaves(&mut self, uid: &str) {
        for preemptor in self.preempting.waiting_for(uid) {
            self.preemption_over(&preemptor);
        }
    }
}

/// Pods that preempt others, and the victim that is evicted last.
#[derive(Debug, Default)]
pub(super) struct Preempting {
    last_victims: HashMap<Name, Name>,
    /// By that victim: several pods can wait for one.
    preemptors: HashMap<Name, BTreeSet<Name>>,
}

impl Preempting {
    pub(super) fn contains(&self, preemptor: &str) -> bool {
        self.last_victims.contains_key(preemptor)
    }

    fn begin(&mut self, preemptor: &Name, victim: &Name) {
        self.end(preemptor);
        self.last_victims.insert(preemptor.clone(), victim.clone());
        let waiting = self.preemptors.entry(victim.clone()).or_default();
        waiting.insert(preemptor.clone());
    }

    fn end(&mut self, preemptor: &str) {
        let Some(victim) = self.last_victims.remove(preemptor) else {
            return;
        };
        if let Some(waiting) = self.preemptors.get_mut(&victim) {
            waiting.remove(preemptor);
            if waiting.is_empty() {
                self.preemptors.remove(&victim);
            }
        }
    }

    fn waiting_for(&self, victim: &str) -> Vec<Name> {
        let waiting = self.preemptors.get(victim).into_iter().flatten();
        waiting.cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn preemptors_are_found_by_their_last_victim() {
        let mut all = Preempting::default();
        let name = Name::from;
        for (preemptor, victim) in [("a", "v"), ("b", "v"), ("c", "w"), ("c", "v"), ("d", "w")] {
            all.begin(&name(preemptor), &name(victim));
        }
        assert_eq!(all.waiting_for("v"), ["a", "b", "c"].map(name));
        all.end("b");
        all.end("b");
        assert_eq!(all.waiting_for("v"), ["a", "c"].map(name));
        assert_eq!(all.waiting_for("w"), ["d"].map(name));
        assert!(all.waiting_for("x").is_empty() && !all.contains("b"));
        ["a", "c", "d"].iter().for_each(|it| all.end(it));
        assert!(all.preemptors.is_empty() && all.last_victims.is_empty());
    }
}
