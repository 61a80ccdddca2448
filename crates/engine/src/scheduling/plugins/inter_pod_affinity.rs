//! Inter-pod affinity and anti-affinity, including the anti-affinity of pods that are already placed.
//!
//! Terms of the incoming pod count the pods that they match; terms of placed pods count these pods. The count of a node
//! is that of its domain under the term's topology key.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

use crate::model::{Labels, Name, Node, Pod, PodKind, PodTerm, PreferredPodTerm, Selector};
use crate::scheduling::framework::arithmetic::MAX_SCORE;
use crate::scheduling::framework::{
    Actions, ArgsError, Carriers, Catalog, Changed, Configure, Count, CountId, Event, EventPattern,
    Fact, Feasible, Kind, Place, PlaceFilter, PlaceScore, Plan, Plugin, PodRule, PodSet, Point,
    Points, Reason, Rejection, TermRole, Verdict, error_list,
};

#[derive(Debug, Clone, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub struct InterPodAffinityArgs {
    /// The weight of a required affinity term of a placed pod that matches the incoming pod, 0 to 100.
    pub hard_pod_affinity_weight: i32,
    /// Ignores preferences of placed pods for pods without preferences.
    pub ignore_preferred_terms_of_existing_pods: bool,
}

impl Default for InterPodAffinityArgs {
    fn default() -> Self {
        Self {
            hard_pod_affinity_weight: 1,
            ignore_preferred_terms_of_existing_pods: false,
        }
    }
}

pub struct InterPodAffinity {
    hard_weight: i64,
    ignores_preferences_of_others: bool,
}

impl Configure for InterPodAffinity {
    const NAME: &'static str = "InterPodAffinity";
    const POINTS: Points = Points::of(&[
        Point::PreFilter,
        Point::Filter,
        Point::PreScore,
        Point::Score,
    ]);
    type Args = InterPodAffinityArgs;

    fn new(args: InterPodAffinityArgs) -> Result<Self, Vec<ArgsError>> {
        let weight = args.hard_pod_affinity_weight;
        if !(0..=100).contains(&weight) {
            let text = format!("Invalid value: {weight}: not in valid range [0, 100]");
            return Err(vec![ArgsError::new("hardPodAffinityWeight", text)]);
        }
        Ok(Self {
            hard_weight: i64::from(weight),
            ignores_preferences_of_others: args.ignore_preferred_terms_of_existing_pods,
        })
    }
}

impl Plugin for InterPodAffinity {
    fn prepare(&self, pod: &Pod, catalog: &Catalog, plan: &mut Plan) {
        if !pod.affinity_errors.is_empty() {
            let errors = error_list(&pod.affinity_errors);
            plan.reject(Rejection::unresolvable(format!("parsing pod: {errors}")));
            return;
        }
        let pod = Incoming::new(pod, catalog);
        pod.prepare_filter(plan);
        let preferences = &pod.pod.kind;
        let has_preferences = !preferences.preferred_affinity.is_empty()
            || !preferences.preferred_anti_affinity.is_empty();
        if has_preferences || !self.ignores_preferences_of_others {
            pod.prepare_score(self.hard_weight, plan);
        }
    }

    fn events(&self) -> Vec<EventPattern> {
        let pod = Actions::ADD.and(Actions::POD_LABEL).and(Actions::DELETE);
        let node = Actions::ADD.and(Actions::NODE_LABEL);
        vec![
            EventPattern::new(Kind::Pod, pod),
            EventPattern::new(Kind::Node, node),
        ]
    }

    fn helps(&self, pod: &Pod, event: &Event, catalog: &Catalog) -> bool {
        if event.changed.is_update_of(pod) {
            return true;
        }
        let pod = Incoming::new(pod, catalog);
        if let Changed::Node(change) = &event.changed {
            let new = change.new.as_deref();
            return new.is_some_and(|new| pod.node_helps(change.old.as_deref(), new));
        }
        match event.changed.pod() {
            Some((change, true)) => pod.pod_helps(change.old.as_deref(), change.new.as_deref()),
            _ => false,
        }
    }
}

/// The incoming pod, with the terms that concern it.
struct Incoming<'a> {
    pod: &'a Pod,
    catalog: &'a Catalog,
    /// Labels of the pod's namespace; empty if the namespace is unknown.
    namespace_labels: Cow<'a, Labels>,
}

impl<'a> Incoming<'a> {
    fn new(pod: &'a Pod, catalog: &'a Catalog) -> Self {
        let namespace_labels = catalog.namespace(pod.namespace());
        Self {
            pod,
            catalog,
            namespace_labels: namespace_labels.map_or_else(Cow::default, Cow::Borrowed),
        }
    }

    /// Whether a term of another pod matches this pod.
    fn is_meant_by(&self, term: &PodTerm) -> bool {
        let labels = self.pod.labels();
        term.matches(self.pod.namespace(), labels, &self.namespace_labels)
    }

    /// A term of this pod with its namespace selector resolved into names.
    ///
    /// Kubernetes 1.36 keeps the selector beside the names and matches it against no labels. So one that matches missing
    /// labels, such as `team NotIn red`, selects every namespace. This code does the same.
    fn resolved(&self, term: &PodTerm) -> PodTerm {
        let selector = &term.namespace_selector;
        if selector.matches(&Labels::default()) {
            return PodTerm {
                namespace_selector: Selector::EVERYTHING,
                ..term.clone()
            };
        }
        let mut namespaces = term.namespaces.clone();
        if *selector != Selector::NOTHING {
            let known = self.catalog.namespaces();
            let matching = known.filter(|(_, labels)| selector.matches(labels));
            namespaces.extend(matching.map(|(name, _)| name.clone()));
            namespaces.sort();
            namespaces.dedup();
        }
        PodTerm {
            namespaces,
            namespace_selector: Selector::NOTHING,
            ..term.clone()
        }
    }

    fn required(&self, terms: &[PodTerm]) -> Vec<PodTerm> {
        terms.iter().map(|term| self.resolved(term)).collect()
    }

    fn preferred(&self, terms: &[PreferredPodTerm]) -> Vec<PreferredPodTerm> {
        let resolve = |preferred: &PreferredPodTerm| PreferredPodTerm {
            weight: preferred.weight,
            term: self.resolved(&preferred.term),
        };
        terms.iter().map(resolve).collect()
    }

    fn prepare_filter(&self, plan: &mut Plan) {
        let kind = &self.pod.kind;
        let sought = self.required(&kind.affinity);
        let avoided = self.required(&kind.anti_affinity);
        let avoiding = self.requiring_us(TermRole::AntiAffinity);
        if sought.is_empty() && avoided.is_empty() && avoiding.is_empty() {
            return;
        }
        let once = |term| PreferredPodTerm { weight: 1, term };
        let near = counts(plan, &sought, |_| MeantByAll(sought.clone()));
        let own = counts(plan, &avoided, |terms| {
            Meant(terms.into_iter().map(once).collect())
        });
        let others = counts(plan, &avoiding, |terms| Requiring {
            role: TermRole::AntiAffinity,
            times: 1,
            terms,
        });
        if sought.is_empty() && avoided.is_empty() {
            plan.filter_only_with(others.clone());
        }
        let seeks_itself = sought
            .iter()
            .all(|term| term.matches(&kind.namespace, &kind.labels, &Labels::default()));
        plan.filter_places(Company {
            near,
            seeks_itself,
            own,
            others,
        });
    }

    fn prepare_score(&self, hard_weight: i64, plan: &mut Plan) {
        let kind = &self.pod.kind;
        let mut pulls: Vec<(i64, CountId)> = Vec::new();
        let mut pull = |sign, counts: Vec<CountId>| {
            pulls.extend(counts.into_iter().map(|count| (sign, count)));
        };
        let sought = self.preferred(&kind.preferred_affinity);
        pull(1, counts(plan, &sought, Meant));
        let avoided = self.preferred(&kind.preferred_anti_affinity);
        pull(-1, counts(plan, &avoided, Meant));

        if hard_weight > 0 {
            let requiring = self.requiring_us(TermRole::Affinity);
            let carriers = |terms| Requiring {
                role: TermRole::Affinity,
                times: hard_weight,
                terms,
            };
            pull(1, counts(plan, &requiring, carriers));
        }
        let carriers = |role| move |terms| Preferring { role, terms };
        for (sign, role) in [(1, TermRole::Affinity), (-1, TermRole::AntiAffinity)] {
            let preferring = self.preferring_us(role);
            pull(sign, counts(plan, &preferring, carriers(role)));
        }
        if !pulls.is_empty() {
            plan.score_only_with(pulls.iter().map(|(_, count)| *count).collect());
            plan.score_places(Attraction(pulls));
        }
    }

    /// Requirements of other pods that match this one, in order.
    fn requiring_us(&self, role: TermRole) -> Vec<PodTerm> {
        let (terms, pod) = (self.catalog.terms(), self.pod);
        let candidates = terms.required(role, pod.namespace(), pod.labels());
        let ours = candidates.filter(|term| self.is_meant_by(term));
        let mut ours: Vec<PodTerm> = ours.cloned().collect();
        ours.sort_unstable();
        ours
    }

    /// Preferences of other pods that match this one, in order.
    fn preferring_us(&self, role: TermRole) -> Vec<PreferredPodTerm> {
        let (terms, pod) = (self.catalog.terms(), self.pod);
        let candidates = terms.preferred(role, pod.namespace(), pod.labels());
        let ours = candidates.filter(|preferred| self.is_meant_by(&preferred.term));
        let mut ours: Vec<PreferredPodTerm> = ours.cloned().collect();
        ours.sort_unstable();
        ours
    }

    /// A pod without required terms was rejected because of terms of others, and any change of domains may help.
    fn node_helps(&self, old: Option<&Node>, new: &Node) -> bool {
        let PodKind {
            affinity,
            anti_affinity,
            ..
        } = &*self.pod.kind;
        let before = |term: &PodTerm| old.and_then(|old| old.spec.labels.get(&term.topology_key));
        let after = |term: &PodTerm| new.spec.labels.get(&term.topology_key);
        let enters = |term: &PodTerm| after(term).is_some() && before(term) != after(term);
        let leaves = |term: &PodTerm| before(term).is_some() && before(term) != after(term);
        affinity.is_empty() && anti_affinity.is_empty()
            || affinity.iter().any(enters)
            || anti_affinity
                .iter()
                .any(|term| old.is_none() || leaves(term))
    }

    /// kube-scheduler waits for a pod that all anti-affinity terms match. Here one match is enough, because any term can
    /// have rejected this pod.
    fn pod_helps(&self, old: Option<&Pod>, new: Option<&Pod>) -> bool {
        let kind = &self.pod.kind;
        let sought = MeantByAll(self.required(&kind.affinity));
        let is_sought = |pod: Option<&Pod>| pod.is_some_and(|pod| sought.counts(&pod.kind) > 0);
        let is_avoided = |pod: Option<&Pod>, term: &PodTerm| {
            let means = |pod: &Pod| term.matches(pod.namespace(), pod.labels(), &Labels::default());
            pod.is_some_and(means)
        };
        let avoids_us = |pod: &Pod| {
            let terms = &pod.kind.anti_affinity;
            terms.iter().any(|term| self.is_meant_by(term))
        };
        !is_sought(old) && is_sought(new)
            || self
                .required(&kind.anti_affinity)
                .iter()
                .any(|term| is_avoided(old, term) && !is_avoided(new, term))
            || new.is_none() && old.is_some_and(avoids_us)
    }
}

/// One count per topology key, in the order in which keys first appear, over the pods of the key's terms.
fn counts<T: AsRef<PodTerm> + Clone, R: PodRule>(
    plan: &mut Plan,
    terms: &[T],
    pods: impl Fn(Vec<T>) -> R,
) -> Vec<CountId> {
    let mut groups: Vec<(&Name, Vec<T>)> = Vec::new();
    for term in terms {
        let key = &term.as_ref().topology_key;
        match groups.iter_mut().find(|(known, _)| *known == key) {
            Some((_, group)) => group.push(term.clone()),
            None => groups.push((key, vec![term.clone()])),
        }
    }
    let mut count = |(key, group): (&Name, _)| {
        let pods = PodSet::new(pods(group));
        plan.count(Count::in_domain(
            pods,
            Fact::domain(key.clone()),
            Vec::new(),
        ))
    };
    groups.into_iter().map(&mut count).collect()
}

/// Pods that all of these resolved terms match.
#[derive(Debug, PartialEq, Eq, Hash)]
struct MeantByAll(Vec<PodTerm>);

impl PodRule for MeantByAll {
    fn counts(&self, pod: &PodKind) -> i64 {
        let means = |term: &PodTerm| term.matches(&pod.namespace, &pod.labels, &Labels::default());
        i64::from(!self.0.is_empty() && self.0.iter().all(means))
    }

    fn namespace(&self) -> Option<&Name> {
        self.0.iter().find_map(only_namespace)
    }
}

/// Pods that these resolved terms match, counted by weight.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Meant(Vec<PreferredPodTerm>);

impl PodRule for Meant {
    fn counts(&self, pod: &PodKind) -> i64 {
        let means = |preferred: &&PreferredPodTerm| {
            let term = &preferred.term;
            term.matches(&pod.namespace, &pod.labels, &Labels::default())
        };
        self.0.iter().filter(means).map(|term| term.weight).sum()
    }

    fn namespace(&self) -> Option<&Name> {
        let first = only_namespace(&self.0.first()?.term)?;
        let same = |other: &PreferredPodTerm| only_namespace(&other.term) == Some(first);
        self.0.iter().all(same).then_some(first)
    }
}

fn only_namespace(term: &PodTerm) -> Option<&Name> {
    match &term.namespaces[..] {
        [one] if term.namespace_selector == Selector::NOTHING => Some(one),
        _ => None,
    }
}

/// Pods that have one of these terms as a requirement.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Requiring {
    role: TermRole,
    times: i64,
    /// In order.
    terms: Vec<PodTerm>,
}

impl PodRule for Requiring {
    fn counts(&self, pod: &PodKind) -> i64 {
        let carried = match self.role {
            TermRole::Affinity => &pod.affinity,
            TermRole::AntiAffinity => &pod.anti_affinity,
        };
        let ours = carried
            .iter()
            .filter(|term| self.terms.binary_search(term).is_ok());
        self.times * ours.count() as i64
    }

    fn carriers(&self) -> Option<Carriers<'_>> {
        Some(Carriers::Requiring(self.role, &self.terms))
    }
}

/// Pods that have one of these terms as a preference, counted by weight.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Preferring {
    role: TermRole,
    /// In order.
    terms: Vec<PreferredPodTerm>,
}

impl PodRule for Preferring {
    fn counts(&self, pod: &PodKind) -> i64 {
        let carried = match self.role {
            TermRole::Affinity => &pod.preferred_affinity,
            TermRole::AntiAffinity => &pod.preferred_anti_affinity,
        };
        let ours = carried
            .iter()
            .filter(|term| self.terms.binary_search(term).is_ok());
        ours.map(|term| term.weight).sum()
    }

    fn carriers(&self) -> Option<Carriers<'_>> {
        Some(Carriers::Preferring(self.role, &self.terms))
    }
}

/// The required terms: affinity and anti-affinity of the pod, and anti-affinity of other pods.
struct Company {
    /// Pods that match the affinity, once per topology key.
    near: Vec<CountId>,
    /// Whether the pod matches its own affinity.
    seeks_itself: bool,
    /// Pods that match the anti-affinity, once per topology key.
    own: Vec<CountId>,
    /// Pods whose anti-affinity matches the pod, once per topology key.
    others: Vec<CountId>,
}

const NOT_NEAR: u8 = 1;
const TOO_NEAR: u8 = 2;
const UNWELCOME: u8 = 3;

impl Company {
    fn is_near(&self, at: Place) -> bool {
        if !self.near.iter().all(|count| at.has_domain(*count)) {
            return false;
        }
        self.near.iter().all(|count| at.count(*count) > 0)
            // The first pod of a group that matches its own affinity may run anywhere.
            || self.seeks_itself && self.near.iter().all(|count| at.tally(*count).total == 0)
    }
}

impl PlaceFilter for Company {
    fn filter(&self, at: Place) -> Verdict {
        if !self.is_near(at) {
            return Verdict::unresolvable(NOT_NEAR);
        }
        if self.own.iter().any(|count| at.count(*count) > 0) {
            return Verdict::unschedulable(TOO_NEAR);
        }
        if self.others.iter().any(|count| at.count(*count) > 0) {
            return Verdict::unschedulable(UNWELCOME);
        }
        Verdict::FITS
    }

    fn reason(&self, code: u8) -> Reason {
        match code {
            NOT_NEAR => "node(s) didn't match pod affinity rules",
            TOO_NEAR => "node(s) didn't match pod anti-affinity rules",
            _ => "node(s) didn't satisfy existing pods anti-affinity rules",
        }
        .into()
    }
}

/// Preferences for and against a domain, with their signs.
struct Attraction(Vec<(i64, CountId)>);

impl PlaceScore for Attraction {
    fn score(&self, at: Place) -> i64 {
        let pull = |(sign, count): &(i64, CountId)| sign * at.count(*count);
        self.0.iter().map(pull).sum()
    }

    fn normalize(&self, _: Feasible, scores: &mut [i64]) {
        let min = scores.iter().copied().min().unwrap_or(0);
        let max = scores.iter().copied().max().unwrap_or(0);
        for score in scores {
            *score = if max == min {
                0
            } else {
                // In this order: 29 of 100 becomes 28.
                (MAX_SCORE as f64 * ((*score - min) as f64 / (max - min) as f64)) as i64
            };
        }
    }
}

#[cfg(test)]
mod tests;
