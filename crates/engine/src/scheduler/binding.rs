//! From a decision to a bound pod: Reserve, Permit, PreBind, Bind; and back, when it comes to nothing.

use std::sync::Arc;
use std::time::Duration;

use super::{Binder, Failure, HeldBy, Outcome, PodState, Scheduler, world};
use crate::cluster::Update;
use crate::framework::{Permit, Point, Preparation, Rejection};
use crate::hooks::PointResult;
use crate::model::{Name, Node, NodeSpec, Pod, Timestamp};
use crate::queue::{Audience, Ticket};

/// The longest that a plugin may hold a pod.
const LONGEST_PERMIT: Duration = Duration::from_secs(15 * 60);

/// A pod that holds room on a node where it is not yet seen.
pub(super) struct UnderWay {
    pub(super) pod: Arc<Pod>,
    node: Arc<Node>,
    profile: usize,
    pub(super) stage: Stage,
}

pub(super) enum Stage {
    /// Plugins that have not allowed it yet. It is in flight in the queue.
    Waiting(Vec<Wait>),
    Preparing(Ticket),
    /// By whom; `None` until that is found out.
    Binding(Ticket, Option<Binder>),
    /// Only not seen on its node yet.
    Bound(Ticket),
}

/// A plugin that makes the pod wait, until when, and how long that is.
pub(super) type Wait = (&'static str, Timestamp, Duration);
/// The plugin that refused, what it is called in messages, and why.
type Refused = (&'static str, &'static str, Rejection);

impl UnderWay {
    pub(super) fn is_waiting(&self) -> bool {
        matches!(self.stage, Stage::Waiting(_))
    }

    /// Who holds it.
    pub(super) fn waits(&self) -> &[Wait] {
        match &self.stage {
            Stage::Waiting(waits) => waits,
            _ => &[],
        }
    }

    pub(super) fn is_preparing(&self) -> bool {
        matches!(self.stage, Stage::Preparing(_))
    }

    pub(super) fn node(&self) -> &Node {
        &self.node
    }

    pub(super) fn profile(&self) -> usize {
        self.profile
    }

    /// `None` while it is in the queue.
    pub(super) fn ticket(&self) -> Option<&Ticket> {
        match &self.stage {
            Stage::Waiting(_) => None,
            Stage::Preparing(ticket) | Stage::Binding(ticket, _) | Stage::Bound(ticket) => {
                Some(ticket)
            }
        }
    }

    /// The point that has begun and not ended.
    fn open_point(&self) -> Option<Point> {
        match &self.stage {
            Stage::Waiting(_) | Stage::Bound(_) => None,
            Stage::Preparing(_) => Some(Point::PreBind),
            Stage::Binding(..) => Some(Point::Bind),
        }
    }

    pub(super) fn state(&self) -> PodState {
        let node = self.node.spec.name.clone();
        match &self.stage {
            Stage::Waiting(waits) => {
                let held_by = waits
                    .iter()
                    .map(|&(plugin, until, _)| HeldBy { plugin, until });
                PodState::Waiting {
                    node,
                    held_by: held_by.collect(),
                }
            }
            Stage::Preparing(_) => PodState::Preparing { node },
            Stage::Binding(..) | Stage::Bound(_) => PodState::Binding { node },
        }
    }

    /// The pod changed in a way that matters only if it must wait again.
    pub(super) fn remember(&mut self, pod: Arc<Pod>) {
        if let Stage::Preparing(ticket) | Stage::Binding(ticket, _) | Stage::Bound(ticket) =
            &mut self.stage
        {
            ticket.pod = pod;
        }
    }
}

impl Scheduler {
    /// The pod takes its room. Only now the search for equals moves on.
    pub(super) fn commit(&mut self, pod: Arc<Pod>, slot: usize, now: Timestamp) {
        let entry = self
            .cluster
            .nodes()
            .get(slot)
            .map(|entry| entry.node.clone());
        let (Some(node), Some(profile)) = (entry, self.profiles.find(&pod.scheduler_name)) else {
            let text = "the chosen node is gone".to_owned();
            return self.fail(Failure::error(pod, text), now);
        };
        if let Err(error) = self.cluster.assume(pod.clone(), node.spec.name.clone()) {
            return self.fail(Failure::error(pod, error.to_string()), now);
        }
        let reserved = self.reserve(profile, &pod, &node);
        let permitted = reserved.and_then(|()| self.permit(profile, &pod, &node, now));
        let waits = match permitted {
            Ok(waits) => waits,
            Err((point, plugin, rejection)) => {
                self.unreserve(profile, &pod, &node.spec);
                // It was assumed a moment ago, so it can be forgotten.
                let _ = self.cluster.forget(&pod.uid);
                let failure = Failure::refused(pod, point, plugin, &rejection);
                return self.fail(failure, now);
            }
        };
        self.cursor.commit(slot);
        self.unconfirmed.remove(&pod.uid);
        let name = node.spec.name.clone();
        let waiting = waits
            .iter()
            .map(|(plugin, until, _)| (*plugin, *until))
            .collect();
        let is_free = waits.is_empty();
        let held = waits.iter();
        self.held
            .extend(held.map(|(plugin, until, _)| (*until, pod.uid.clone(), *plugin)));
        let under_way = UnderWay {
            pod: pod.clone(),
            node,
            profile,
            stage: Stage::Waiting(waits),
        };
        self.under_way.insert(pod.uid.clone(), under_way);
        if is_free {
            return self.prepare(&pod.uid, now);
        }
        self.ready.push_back(Outcome::Wait {
            pod,
            node: name,
            plugins: waiting,
        });
    }

    fn reserve(&mut self, profile: usize, pod: &Arc<Pod>, node: &Arc<Node>) -> Result<(), Refused> {
        let profile = self.profiles.get(profile);
        let hooks = self.profiles.hooks();
        let catalog = self.cluster.catalog_mut();
        let run = |pod: &Arc<Pod>| {
            let node = hooks.node(Point::Reserve, pod, node);
            for &index in profile.at(Point::Reserve) {
                let enabled = &profile.plugins()[index];
                let reserved = enabled.plugin.reserve(pod, &node.spec, catalog);
                reserved.map_err(|rejection| ("Reserve", enabled.name, rejection))?;
            }
            Ok(())
        };
        hooks.around(Point::Reserve, pod, run, point_result)
    }

    /// In the reverse order, and for every plugin, whether it had its turn or not.
    fn unreserve(&mut self, profile: usize, pod: &Pod, node: &NodeSpec) {
        let profile = self.profiles.get(profile);
        let hooks = self.profiles.hooks();
        hooks.before_unreserve(pod);
        for &index in profile.at(Point::Reserve).iter().rev() {
            let plugin = &profile.plugins()[index].plugin;
            plugin.unreserve(pod, node, self.cluster.catalog_mut());
        }
        hooks.after_unreserve(pod);
    }

    fn permit(
        &self,
        profile: usize,
        pod: &Arc<Pod>,
        node: &Arc<Node>,
        now: Timestamp,
    ) -> Result<Vec<Wait>, Refused> {
        let profile = self.profiles.get(profile);
        let hooks = self.profiles.hooks();
        let run = |pod: &Arc<Pod>| {
            let node = hooks.node(Point::Permit, pod, node);
            let mut waits = Vec::new();
            for &index in profile.at(Point::Permit) {
                let enabled = &profile.plugins()[index];
                let catalog = self.cluster.catalog();
                match enabled.plugin.permit(pod, &node.spec, catalog) {
                    Ok(Permit::Go) => {}
                    Ok(Permit::Wait(time)) => {
                        let time = time.min(LONGEST_PERMIT);
                        waits.push((enabled.name, now.plus(time), time));
                    }
                    Err(rejection) => return Err(("Permit", enabled.name, rejection)),
                }
            }
            Ok(waits)
        };
        hooks.around(Point::Permit, pod, run, |found| match found {
            Ok(waits) if !waits.is_empty() => PointResult::Wait,
            found => point_result(found),
        })
    }

    /// Nobody holds the pod: what must be done before it can be bound?
    pub(super) fn prepare(&mut self, uid: &Name, now: Timestamp) {
        let queue_world = world(&self.profiles, &self.cluster, now);
        let ticket = self.queue.take(uid, queue_world);
        let (Some(ticket), Some(under_way)) = (ticket, self.under_way.get_mut(uid)) else {
            return;
        };
        under_way.stage = Stage::Preparing(ticket);
        let (pod, node) = (under_way.pod.clone(), under_way.node.clone());
        let profile = self.profiles.get(under_way.profile);
        let hooks = self.profiles.hooks();
        let seen = hooks.pod(Point::PreBind, &pod);
        hooks.before(Point::PreBind, &seen);
        let seen_node = hooks.node(Point::PreBind, &seen, &node);
        let mut work: Vec<(&'static str, Preparation)> = Vec::new();
        let mut busy = Vec::new();
        let mut refused = None;
        for &index in profile.at(Point::PreBind) {
            let enabled = &profile.plugins()[index];
            let catalog = self.cluster.catalog();
            match enabled.plugin.pre_bind(&seen, &seen_node.spec, catalog) {
                Ok(None) => {}
                Ok(Some(preparation)) => {
                    work.push((enabled.name, preparation));
                    busy.push((index, 1));
                }
                Err(rejection) => {
                    refused = Some((enabled.name, rejection.message()));
                    break;
                }
            }
        }
        if let Some((plugin, text)) = refused {
            return self.preparation_failed(uid, plugin, &text, now);
        }
        hooks.evaluated(Point::PreBind, &seen, || busy);
        if work.is_empty() {
            return self.bind(uid, now);
        }
        self.ready.push_back(Outcome::Prepare {
            pod,
            node: node.spec.name.clone(),
            work,
        });
    }

    /// [`super::Input::Prepared`].
    pub(super) fn prepared(
        &mut self,
        uid: &Name,
        result: Result<(), (Name, String)>,
        now: Timestamp,
    ) {
        if !self.under_way.get(uid).is_some_and(UnderWay::is_preparing) {
            return;
        }
        match result {
            Ok(()) => self.bind(uid, now),
            Err((plugin, text)) => self.preparation_failed(uid, &plugin, &text, now),
        }
    }

    fn preparation_failed(&mut self, uid: &Name, plugin: &str, text: &str, now: Timestamp) {
        let text = format!("running PreBind plugin \"{plugin}\": {text}");
        self.break_off(uid, text, now);
    }

    fn bind(&mut self, uid: &Name, now: Timestamp) {
        let Some(under_way) = self.under_way.get_mut(uid) else {
            return;
        };
        let Stage::Preparing(ticket) = &under_way.stage else {
            return;
        };
        under_way.stage = Stage::Binding(ticket.clone(), None);
        let (pod, node) = (under_way.pod.clone(), under_way.node.spec.name.clone());
        let hooks = self.profiles.hooks();
        hooks.end(Point::PreBind, &pod, PointResult::Success);
        let seen = hooks.pod(Point::Bind, &pod);
        hooks.before(Point::Bind, &seen);
        let profile = self.profiles.get(under_way.profile);
        let extender = self
            .extenders
            .iter()
            .position(|extender| extender.binds && extender.is_interested(&pod));
        let plugin = || {
            let mut enabled = profile
                .at(Point::Bind)
                .iter()
                .map(|i| &profile.plugins()[*i]);
            enabled.find(|enabled| enabled.plugin.binds(&seen))
        };
        let by = match extender {
            Some(extender) => Some(Binder::Extender(extender)),
            None => plugin().map(|enabled| Binder::Plugin(enabled.name)),
        };
        let Some(by) = by else {
            let text = "every Bind plugin left the pod to the next one".to_owned();
            return self.break_off(uid, text, now);
        };
        if let Stage::Binding(_, found) = &mut under_way.stage {
            *found = Some(by);
        }
        self.ready.push_back(Outcome::Bind { pod, node, by });
    }

    /// [`super::Input::Bound`]. A bound pod keeps its room; it is no longer under way once it is seen on its node.
    pub(super) fn bound(&mut self, uid: &Name, result: Result<(), String>, now: Timestamp) {
        let Some(under_way) = self.under_way.get_mut(uid) else {
            return;
        };
        let Stage::Binding(ticket, by) = &under_way.stage else {
            return;
        };
        match result {
            Ok(()) => {
                under_way.stage = Stage::Bound(ticket.clone());
                let (profile, pod) = (under_way.profile, under_way.pod.clone());
                let node = under_way.node.clone();
                self.post_bind(profile, &pod, &node);
            }
            Err(text) => {
                let text = match by {
                    Some(Binder::Plugin(name)) => format!("running Bind plugin \"{name}\": {text}"),
                    Some(Binder::Extender(_)) | None => text,
                };
                self.break_off(uid, text, now);
            }
        }
    }

    /// The end of Bind, and PostBind.
    fn post_bind(&mut self, profile: usize, pod: &Arc<Pod>, node: &Arc<Node>) {
        let profile = self.profiles.get(profile);
        let hooks = self.profiles.hooks();
        hooks.end(Point::Bind, pod, PointResult::Success);
        let catalog = self.cluster.catalog_mut();
        let run = |pod: &Arc<Pod>| {
            let node = hooks.node(Point::PostBind, pod, node);
            for &index in profile.at(Point::PostBind) {
                let plugin = &profile.plugins()[index].plugin;
                plugin.post_bind(pod, &node.spec, catalog);
            }
        };
        hooks.around(Point::PostBind, pod, run, |()| PointResult::Success);
    }

    /// The pod was seen on a node: whatever was under way has an end.
    pub(super) fn arrived(&mut self, uid: &str, node: Option<&Name>) {
        let Some(under_way) = self.leave(uid) else {
            return;
        };
        let (profile, pod) = (under_way.profile, &under_way.pod);
        if node != Some(&under_way.node.spec.name) {
            self.close(&under_way, "somebody bound the pod to another node");
            self.unreserve(profile, pod, &under_way.node.spec);
        } else if matches!(under_way.stage, Stage::Binding(..)) {
            // It was seen before it was reported.
            self.post_bind(profile, pod, &under_way.node);
        } else {
            self.close(&under_way, "somebody else bound the pod");
        }
    }

    /// Ends a point that came to nothing.
    fn close(&self, under_way: &UnderWay, text: &str) {
        if let Some(point) = under_way.open_point() {
            let hooks = self.profiles.hooks();
            hooks.end(point, &under_way.pod, PointResult::error(text));
        }
    }

    fn break_off(&mut self, uid: &Name, text: String, now: Timestamp) {
        let Some(under_way) = self.under_way.get(uid) else {
            return;
        };
        let pod = under_way.pod.clone();
        self.come_to_nothing(uid, Failure::error(pod, text), now);
    }

    /// Gives the room back and lets the pod wait again.
    pub(super) fn come_to_nothing(&mut self, uid: &Name, failure: Failure, now: Timestamp) {
        let Some(ticket) = self.give_room_back(uid, &failure.message, now) else {
            return;
        };
        if self.wait_again(&failure, &[], ticket, now) {
            self.ready.push_back(Outcome::Park(failure));
        }
    }

    /// Returns the pod's ticket, if it has left the queue; `None` if there was nothing to give back.
    pub(super) fn give_room_back(
        &mut self,
        uid: &Name,
        why: &str,
        now: Timestamp,
    ) -> Option<Option<Ticket>> {
        let under_way = self.leave(uid)?;
        self.close(&under_way, why);
        self.unreserve(under_way.profile, &under_way.pod, &under_way.node.spec);
        // Refused if the pod was seen bound, and then it is not under way.
        let events = self
            .cluster
            .apply(Update::Forget { uid: uid.clone() })
            .ok()?;
        let audience = Audience {
            but: Some(uid.clone()),
            ..Audience::default()
        };
        self.notify(&events, &audience, now);
        Some(match under_way.stage {
            Stage::Waiting(_) => None,
            Stage::Preparing(ticket) | Stage::Binding(ticket, _) | Stage::Bound(ticket) => {
                Some(ticket)
            }
        })
    }

    /// The pod is under way no more, and nobody holds it.
    fn leave(&mut self, uid: &str) -> Option<UnderWay> {
        let (uid, under_way) = self.under_way.swap_remove_entry(uid)?;
        for (plugin, until, _) in under_way.waits() {
            self.held.remove(&(*until, uid.clone(), *plugin));
        }
        Some(under_way)
    }

    pub(super) fn under_way_as(&self, is_it: impl Fn(&Pod) -> bool) -> Option<&Name> {
        let mut under_way = self.under_way.iter();
        Some(under_way.find(|(_, known)| is_it(&known.pod))?.0)
    }
}

fn point_result<T>(result: &Result<T, Refused>) -> PointResult {
    match result {
        Ok(_) => PointResult::Success,
        Err((.., rejection)) => PointResult::Rejected(rejection.clone()),
    }
}
