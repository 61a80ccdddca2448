//! What can be done for a pod that no node would take: PostFilter, and carrying out a preemption.

use super::{Failure, Nomination, Outcome, Scheduler};
use crate::cluster::Cluster;
use crate::evaluate::{Diagnosis, Scan};
use crate::framework::{Point, PostFilter, Status};
use crate::model::{Name, Pod, Timestamp};
use crate::preemption::{self, Candidate, Search, Wanted};
use crate::profile::Profile;

/// What PostFilter came to.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Room {
    /// For the end of the pod's message.
    pub(super) words: String,
    pub(super) nomination: Nomination,
    pub(super) candidate: Option<Candidate>,
    /// A plugin failed; its words say how.
    pub(super) failed: bool,
}

/// The same before extenders had their say and one candidate was taken.
#[derive(Debug, Clone)]
pub struct PostFiltered {
    /// What the plugins had to say; it does not count if there are candidates.
    pub words: Vec<String>,
    /// What becomes of the pod's nomination if there are no candidates.
    pub nomination: Nomination,
    /// Where victims were looked for; `None` if nobody asked for it or the pod may not preempt.
    pub search: Option<Search>,
    /// Plugins that had their turn, by their index in the profile.
    pub asked: Vec<usize>,
    /// The last of them failed.
    pub failed: bool,
}

impl PostFiltered {
    /// Candidates there were, but extenders left none.
    pub(super) fn give_up(&mut self) {
        self.search = None;
        self.nomination = Nomination::Keep;
        self.words
            .push("preemption: no candidate node for preemption".to_owned());
    }

    /// An extender's word on the candidates cannot be used. Kubernetes then says nothing else.
    pub(super) fn break_off(&mut self, text: &str) {
        self.search = None;
        self.nomination = Nomination::Keep;
        self.words = vec![format!("preemption: {text}")];
        self.failed = true;
    }

    pub(super) fn room(self, now: Timestamp) -> Room {
        let candidates = self.search.map(|search| search.candidates);
        let best = preemption::best(candidates.as_deref().unwrap_or_default(), now);
        match best.first() {
            Some(&candidate) => Room {
                words: String::new(),
                nomination: Nomination::Set(candidate.node.clone()),
                candidate: Some(candidate.clone()),
                failed: false,
            },
            None => Room {
                words: self.words.join(", "),
                nomination: self.nomination,
                candidate: None,
                failed: self.failed,
            },
        }
    }
}

/// Asks the plugins of PostFilter in their order.
pub fn post_filter(
    cluster: &Cluster,
    scan: &Scan,
    profile: &Profile,
    pod: &Pod,
    diagnosis: &Diagnosis,
    wanted: Wanted,
    now: Timestamp,
) -> PostFiltered {
    let mut found = PostFiltered {
        words: Vec::new(),
        // Without any such plugin there is nobody to keep a nomination for.
        nomination: Nomination::Clear,
        search: None,
        asked: Vec::new(),
        failed: false,
    };
    let asked = asked(profile, diagnosis);
    for &index in profile.at(Point::PostFilter) {
        found.nomination = Nomination::Keep;
        found.asked.push(index);
        let plugin = &profile.plugins()[index].plugin;
        match plugin.post_filter(pod, cluster.catalog(), asked.contains(&index)) {
            PostFilter::Nothing(text) if text.is_empty() => {}
            PostFilter::Nothing(text) => found.words.push(text.into_owned()),
            PostFilter::Failed(text) => {
                found.words = vec![text.into_owned()];
                found.failed = true;
                break;
            }
            PostFilter::Preempt => {
                if let Err(text) = preemption::eligible(cluster, pod, diagnosis) {
                    found.words.push(format!("preemption: {text}"));
                    continue;
                }
                let search = preemption::search(cluster, scan, pod, diagnosis, wanted, now);
                if let Some(text) = search.failure() {
                    found.words = vec![format!("preemption: {text}")];
                    found.failed = true;
                    break;
                }
                let found_none = search.candidates.is_empty();
                if found_none {
                    let text = preemption::message(diagnosis, &search, scan);
                    found.words.push(format!("preemption: {text}"));
                    found.nomination = Nomination::Clear;
                }
                found.search = Some(search);
                if !found_none {
                    break;
                }
            }
        }
    }
    found
}

/// Plugins whose turn at PreFilter came: all, unless one ended it.
fn asked<'p>(profile: &'p Profile, diagnosis: &Diagnosis) -> &'p [usize] {
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
    /// Takes the candidate: victims that are not bound yet lose their room at once, the others are for the shell.
    pub(super) fn preempt(&mut self, failure: Failure, candidate: Candidate, now: Timestamp) {
        let pod = failure.pod.clone();
        let mut victims = Vec::new();
        for victim in candidate.victims {
            let cancelled = match self.under_way.get(&victim.uid) {
                Some(under_way) if under_way.is_waiting() => {
                    Some("waiting on permit for pod: preempted")
                }
                Some(under_way) if under_way.is_preparing() => {
                    Some("preempted by DefaultPreemption")
                }
                _ => None,
            };
            match cancelled {
                Some(text) => {
                    let failure = Failure::error(victim.clone(), text.to_owned());
                    self.come_to_nothing(&victim.uid, failure, now);
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
            self.preempting.insert(pod.uid.clone(), last.uid.clone());
            self.cluster
                .catalog_mut()
                .set_preempting(pod.uid.clone(), true);
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

    /// The pod need not wait for its victims any more.
    pub(super) fn preemption_over(&mut self, uid: &Name) {
        self.preempting.swap_remove(uid);
        self.cluster
            .catalog_mut()
            .set_preempting(uid.clone(), false);
    }

    /// A pod goes or is gone. Whoever waits for it as the last victim waits for its room only.
    pub(super) fn victim_leaves(&mut self, uid: &str) {
        let waiting: Vec<Name> = self
            .preempting
            .iter()
            .filter(|(_, last)| ***last == *uid)
            .map(|(preemptor, _)| preemptor.clone())
            .collect();
        waiting
            .iter()
            .for_each(|preemptor| self.preemption_over(preemptor));
    }
}
