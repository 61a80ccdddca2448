//! One decision: every node, every plugin, and whoever outside has a say. Nothing is changed by it.

use std::sync::Arc;

use super::extenders::{Answered, Talk};
use super::post_filter::{self, Room};
use super::{Scheduler, Scores};
use crate::cluster::Cluster;
use crate::evaluate::{Diagnosis, Narrowed, Outcome as Verdict, Scan};
use crate::extender::Question;
use crate::framework::{Point, Points, Rejection, Status};
use crate::hooks::Said;
use crate::model::{Pod, Timestamp};
use crate::preemption::{Candidate, Wanted};
use crate::profile::Profile;

#[expect(
    clippy::large_enum_variant,
    reason = "made once per decision and taken apart at once"
)]
pub(super) enum Decision {
    Node {
        slot: usize,
        /// If somebody wants to see them.
        scores: Option<Box<Scores>>,
    },
    NoNode {
        diagnosis: Diagnosis,
        room: Room,
    },
    Ask(Vec<Question>),
    /// Something broke.
    Broken(String),
    /// Nobody knows the pod's priority class.
    UnknownClass(String),
    /// There are no nodes at all.
    NoCluster,
}

/// Points at which a decision looks at nodes.
pub(super) const LOOKING: Points = Points::of(&[
    Point::PreFilter,
    Point::Filter,
    Point::PostFilter,
    Point::PreScore,
    Point::Score,
]);

impl Scheduler {
    pub(super) fn decide(&mut self, pod: &Arc<Pod>, now: Timestamp) -> Decision {
        let mut talk = self.talk.take();
        if let Some(text) = self.unknown_class(pod) {
            return Decision::UnknownClass(text);
        }
        if self.cluster.nodes().is_empty() {
            return Decision::NoCluster;
        }
        let Some(profile) = self.profiles.find(&pod.scheduler_name) else {
            return Decision::Broken(format!("no profile is named `{}`", pod.scheduler_name));
        };
        if talk.is_none() && self.extenders.iter().any(|other| other.is_interested(pod)) {
            talk = Some(Talk::new(pod.uid.clone()));
        }
        let profile = self.profiles.get(profile);
        let decided = match &mut talk {
            Some(talk) => talk.listen(&self.extenders),
            None => Ok(()),
        };
        let decided = decided.and_then(|()| {
            if self.profiles.hooks().any(LOOKING) {
                self.decide_by_steps(profile, pod, &mut talk, now)
            } else {
                self.decide_at_once(profile, pod, &mut talk, now)
            }
        });
        let decision = decided.unwrap_or_else(Decision::Broken);
        match talk {
            Some(talk) if matches!(decision, Decision::Ask(_)) => self.talk = Some(talk),
            Some(talk) => self.remember(talk),
            None => {}
        }
        decision
    }

    /// All steps on one view of the world.
    fn decide_at_once(
        &self,
        profile: &Profile,
        pod: &Arc<Pod>,
        talk: &mut Option<Talk>,
        now: Timestamp,
    ) -> Result<Decision, String> {
        let mut scan = Scan::new(&self.cluster, profile, pod);
        let diagnosis = match talk {
            None => match scan.decide(self.cursor) {
                Verdict::Chosen { slot, .. } => {
                    let scores = self.scores(&mut scan, pod, slot, now, |scan| scan.filter());
                    return Ok(Decision::Node { slot, scores });
                }
                Verdict::Rejected(diagnosis) => diagnosis,
                Verdict::Failed(text) => return Err(text),
            },
            Some(talk) => {
                let feasible = scan.feasible()?;
                match talk.go_on(&feasible, &self.cluster, pod, &self.extenders) {
                    Answered::One(slot) => {
                        let scores = self.scores(&mut scan, pod, slot, now, |_| Ok(vec![slot]));
                        return Ok(Decision::Node { slot, scores });
                    }
                    Answered::Several(among) => {
                        let (slot, _) = scan.choose(&among, self.cursor)?;
                        let among = |_: &mut Scan| Ok(slots(&among));
                        let scores = self.scores(&mut scan, pod, slot, now, among);
                        return Ok(Decision::Node { slot, scores });
                    }
                    Answered::Ask(questions) => return Ok(Decision::Ask(questions)),
                    Answered::None => talk.complain(scan.diagnose(), &self.cluster),
                }
            }
        };
        Ok(self.make_room(&self.cluster, &scan, profile, pod, diagnosis, talk, now))
    }

    /// Step by step, with hooks around each, on what they show of the world for it.
    fn decide_by_steps(
        &self,
        profile: &Profile,
        pod: &Arc<Pod>,
        talk: &mut Option<Talk>,
        now: Timestamp,
    ) -> Result<Decision, String> {
        let hooks = self.profiles.hooks();
        let mut looks = Looks {
            scheduler: self,
            profile,
            pod,
            narrowed: None,
            shared: (!hooks.rewrite(LOOKING)).then_some(None),
        };
        let ended = hooks.around(
            Point::PreFilter,
            pod,
            |pod| {
                let (narrowed, ended) = looks.at(Point::PreFilter, pod, |_, scan| {
                    hooks.asked(Point::PreFilter, pod, || scan.asked_to_pre_filter());
                    let ended = match scan.early_end() {
                        None => Ok(None),
                        Some((_, rejection)) if rejection.is_failure() => Err(rejection.message()),
                        Some(_) => Ok(Some(scan.diagnose())),
                    };
                    (scan.narrowed().clone(), ended)
                });
                looks.narrowed = Some(narrowed);
                ended
            },
            |ended| match ended {
                Ok(None) => Said::Fine,
                Ok(Some(diagnosis)) => {
                    let status = diagnosis.statuses.first().map(|node| node.status);
                    let text = diagnosis.pre_filter.clone().unwrap_or_default();
                    Said::No(Rejection::new(status.unwrap_or(Status::Unresolvable), text))
                }
                Err(text) => broken(text),
            },
        )?;
        let diagnosis = match ended {
            Some(diagnosis) => match talk {
                Some(talk) => talk.complain(diagnosis, &self.cluster),
                None => diagnosis,
            },
            None => {
                let (feasible, diagnosis) = hooks.around(
                    Point::Filter,
                    pod,
                    |pod| {
                        looks.at(Point::Filter, pod, |_, scan| {
                            let feasible = match talk {
                                // The nominated node alone is for the talk to try.
                                Some(_) => scan.feasible()?,
                                None => scan.filter()?,
                            };
                            hooks.asked(Point::Filter, pod, || scan.asked_to_filter());
                            let needs_words = talk.is_some() || feasible.is_empty();
                            let diagnosis = needs_words.then(|| scan.diagnose());
                            Ok((feasible, diagnosis.unwrap_or_default()))
                        })
                    },
                    |found| match found {
                        Ok((feasible, _)) if !feasible.is_empty() => Said::Fine,
                        Ok((_, diagnosis)) => {
                            Said::No(Rejection::unschedulable(diagnosis.message("")))
                        }
                        Err(text) => broken(text),
                    },
                )?;
                let answered = match talk {
                    Some(talk) => talk.go_on(&feasible, &self.cluster, pod, &self.extenders),
                    None => Answered::without_extenders(&feasible),
                };
                match (answered, talk.as_ref()) {
                    (Answered::One(slot), _) => {
                        let scores = looks.scores(slot, now, || vec![slot]);
                        return Ok(Decision::Node { slot, scores });
                    }
                    (Answered::Ask(questions), _) => return Ok(Decision::Ask(questions)),
                    (Answered::Several(among), _) => {
                        let slot = self.choose_by_steps(&mut looks, &among)?;
                        let scores = looks.scores(slot, now, || slots(&among));
                        return Ok(Decision::Node { slot, scores });
                    }
                    (Answered::None, Some(talk)) => talk.complain(diagnosis, &self.cluster),
                    (Answered::None, None) => diagnosis,
                }
            }
        };
        let said = |decision: &Decision| match decision {
            Decision::NoNode { room, .. } if room.failed => broken(&room.words),
            Decision::NoNode { room, .. } if room.candidate.is_none() => {
                Said::No(Rejection::unschedulable(room.words.clone()))
            }
            _ => Said::Fine,
        };
        let make_room = |pod: &Arc<Pod>| {
            looks.at(Point::PostFilter, pod, |cluster, scan| {
                self.make_room(cluster, scan, profile, pod, diagnosis, talk, now)
            })
        };
        Ok(hooks.around(Point::PostFilter, pod, make_room, said))
    }

    /// PreScore and Score, for several nodes that fit.
    fn choose_by_steps(&self, looks: &mut Looks, among: &[(usize, i64)]) -> Result<usize, String> {
        let (hooks, pod) = (self.profiles.hooks(), looks.pod);
        // Nodes that the scores leave out are left out already.
        looks.narrowed = Some(Narrowed::All);
        let pre_score = |pod: &Arc<Pod>| {
            looks.at(Point::PreScore, pod, |_, scan| {
                let fine = scan.pre_score();
                hooks.asked(Point::PreScore, pod, || scan.asked_to_pre_score());
                fine
            })
        };
        let said = |fine: &Result<(), String>| fine.as_ref().map_or_else(broken, |()| Said::Fine);
        hooks.around(Point::PreScore, pod, pre_score, said)?;
        let score = |pod: &Arc<Pod>| {
            looks.at(Point::Score, pod, |_, scan| {
                let (slot, _) = scan.choose(among, self.cursor)?;
                hooks.asked(Point::Score, pod, || scan.asked_to_score(among.len()));
                Ok(slot)
            })
        };
        let said = |found: &Result<_, String>| found.as_ref().map_or_else(broken, |_| Said::Fine);
        hooks.around(Point::Score, pod, score, said)
    }

    /// PostFilter: no node would do.
    #[expect(
        clippy::too_many_arguments,
        reason = "one step of a decision, with all it knows"
    )]
    fn make_room(
        &self,
        cluster: &Cluster,
        scan: &Scan,
        profile: &Profile,
        pod: &Arc<Pod>,
        diagnosis: Diagnosis,
        talk: &mut Option<Talk>,
        now: Timestamp,
    ) -> Decision {
        let wanted = match talk {
            Some(_) => Wanted::All,
            None => Wanted::Best,
        };
        let mut found =
            post_filter::post_filter(cluster, scan, profile, pod, &diagnosis, wanted, now);
        self.profiles.hooks().asked(Point::PostFilter, pod, || {
            found.asked.iter().map(|index| (*index, 1)).collect()
        });
        if let (Some(talk), Some(search)) = (talk, &mut found.search)
            && !search.candidates.is_empty()
        {
            match talk.about_room(&mut search.candidates, cluster, pod, &self.extenders) {
                Ok(Some(questions)) => return Decision::Ask(questions),
                Ok(None) if search.candidates.is_empty() => found.give_up(),
                Ok(None) => {}
                Err(text) => found.break_off(&text),
            }
        }
        if let Some(search) = &mut found.search
            && !search.candidates.is_empty()
        {
            search
                .candidates
                .retain(|candidate| self.spares(pod, candidate));
            if search.candidates.is_empty() {
                found.give_up();
            }
        }
        let room = found.room(now);
        Decision::NoNode { diagnosis, room }
    }

    /// Whether no victim is a pod that ours must not evict, by what both really are: hooks may have shown them as others.
    fn spares(&self, pod: &Arc<Pod>, candidate: &Candidate) -> bool {
        let ours = self.queue.get(&pod.uid).map_or(pod, |ticket| &ticket.pod);
        let really = |victim: &Arc<Pod>| match self.cluster.placed(&victim.uid) {
            Some(placed) => ours.may_evict(&placed.pod),
            None => ours.may_evict(victim),
        };
        candidate.victims.iter().all(really)
    }
}

#[expect(clippy::ptr_arg, reason = "it is handed over as a function")]
fn broken(text: &String) -> Said {
    Said::No(Rejection::error(text.clone()))
}

/// The world as each step sees it: once for all of them if nobody changes it, else anew.
struct Looks<'a> {
    scheduler: &'a Scheduler,
    profile: &'a Profile,
    pod: &'a Arc<Pod>,
    /// What PreFilter said, once it has.
    narrowed: Option<Narrowed>,
    shared: Option<Option<Scan<'a>>>,
}

fn slots(among: &[(usize, i64)]) -> Vec<usize> {
    among.iter().map(|(slot, _)| *slot).collect()
}

impl Looks<'_> {
    /// For whoever wants to see them; the plugins' turn is over.
    fn scores(
        &mut self,
        slot: usize,
        now: Timestamp,
        among: impl FnOnce() -> Vec<usize>,
    ) -> Option<Box<Scores>> {
        let (scheduler, pod) = (self.scheduler, self.pod);
        if scheduler.wanted_scores(pod) == 0 {
            return None;
        }
        let seen = scheduler.profiles.hooks().pod(Point::Score, pod);
        self.at(Point::Score, &seen, |_, scan| {
            scheduler.scores(scan, pod, slot, now, |_| Ok(among()))
        })
    }

    fn at<T>(
        &mut self,
        point: Point,
        pod: &Arc<Pod>,
        look: impl FnOnce(&Cluster, &mut Scan) -> T,
    ) -> T {
        let (real, profile) = (&self.scheduler.cluster, self.profile);
        if let Some(shared) = &mut self.shared {
            let scan = shared.get_or_insert_with(|| Scan::begin(real, profile, self.pod));
            return look(real, scan);
        }
        let cluster = self.scheduler.profiles.hooks().cluster(point, pod, real);
        let mut scan = match &self.narrowed {
            None => Scan::new(&cluster, profile, pod),
            Some(narrowed) => Scan::resume(&cluster, profile, pod, narrowed.clone()),
        };
        look(&cluster, &mut scan)
    }
}
