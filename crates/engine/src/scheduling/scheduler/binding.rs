//! The binding cycle: Reserve, Permit, PreBind and Bind, and how it is undone if it fails.

use std::sync::Arc;
use std::time::Duration;

use super::{Binder, Failure, HeldBy, Outcome, PodState, Scheduler, world};
use crate::model::{Name, Node, NodeSpec, Pod, Timestamp};
use crate::scheduling::framework::{Permit, Point, Preparation, Rejection};
use crate::scheduling::hooks::PointResult;
use crate::scheduling::queue::{Audience, Ticket};

/// The longest time that a plugin can hold a pod at Permit.
const LONGEST_PERMIT: Duration = Duration::from_secs(15 * 60);

/// A pod that is assumed on a node where the API server does not show it yet.
pub(super) struct BindingCycle {
    pub(super) pod: Arc<Pod>,
    node: Arc<Node>,
    profile: usize,
    pub(super) stage: Stage,
}

pub(super) enum Stage {
    /// Plugins of Permit that have not allowed it yet. The pod is in flight in the queue.
    Waiting(Vec<Wait>),
    Preparing(Ticket),
    /// What binds it; `None` until that is known.
    Binding(Ticket, Option<Binder>),
    /// Bound; the API server does not show it on its node yet.
    Bound(Ticket),
}

/// A plugin that holds the pod, until when, and for how long.
pub(super) type Wait = (&'static str, Timestamp, Duration);
/// The name of the point in messages, the plugin that rejected the node, and its rejection.
type Refused = (&'static str, &'static str, Rejection);

impl BindingCycle {
    pub(super) fn is_waiting(&self) -> bool {
        matches!(self.stage, Stage::Waiting(_))
    }

    /// The plugins that hold it.
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

    /// `None` while the pod is in the queue.
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

    /// The pod changed; it matters only if the pod must wait again.
    pub(super) fn remember(&mut self, pod: Arc<Pod>) {
        if let Stage::Preparing(ticket) | Stage::Binding(ticket, _) | Stage::Bound(ticket) =
            &mut self.stage
        {
            ticket.pod = pod;
        }
    }
}

impl Scheduler {
    /// Assumes the pod on the node and starts its binding cycle. The cursor moves only here.
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
        let waiting = pod;
        let pod = self.with_zones(profile, &waiting, slot);
        if let Err(error) = self.cluster.assume(pod.clone(), node.spec.name.clone()) {
            return self.fail(Failure::error(waiting, error.to_string()), now);
        }
        let reserved = self.reserve(profile, &pod, &node);
        let permitted = reserved.and_then(|()| self.permit(profile, &pod, &node, now));
        let waits = match permitted {
            Ok(waits) => waits,
            Err((point, plugin, rejection)) => {
                self.unreserve(profile, &pod, &node.spec);
                // It was assumed a moment ago, so it can be forgotten.
                let _ = self.cluster.forget(&pod.uid);
                let failure = Failure::refused(waiting, point, plugin, &rejection);
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
        let binding = BindingCycle {
            pod: pod.clone(),
            node,
            profile,
            stage: Stage::Waiting(waits),
        };
        self.binding.insert(pod.uid.clone(), binding);
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

    /// In reverse order, and for every plugin, whether it reserved or not.
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

    /// Permit is over: collects the work of PreBind.
    pub(super) fn prepare(&mut self, uid: &Name, now: Timestamp) {
        let queue_world = world(&self.profiles, &self.cluster, now);
        let ticket = self.queue.take(uid, queue_world);
        let (Some(ticket), Some(binding)) = (ticket, self.binding.get_mut(uid)) else {
            return;
        };
        binding.stage = Stage::Preparing(ticket);
        let (pod, node) = (binding.pod.clone(), binding.node.clone());
        let profile = self.profiles.get(binding.profile);
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
        if !self
            .binding
            .get(uid)
            .is_some_and(BindingCycle::is_preparing)
        {
            return;
        }
        match result {
            Ok(()) => self.bind(uid, now),
            Err((plugin, text)) => self.preparation_failed(uid, &plugin, &text, now),
        }
    }

    fn preparation_failed(&mut self, uid: &Name, plugin: &str, text: &str, now: Timestamp) {
        let text = format!("running PreBind plugin \"{plugin}\": {text}");
        self.fail_binding(uid, text, now);
    }

    fn bind(&mut self, uid: &Name, now: Timestamp) {
        let Some(binding) = self.binding.get_mut(uid) else {
            return;
        };
        let Stage::Preparing(ticket) = &binding.stage else {
            return;
        };
        // As it is now: its owner may have annotated it since the decision.
        let mut latest = ticket.pod.clone();
        binding.stage = Stage::Binding(ticket.clone(), None);
        let (pod, node) = (binding.pod.clone(), binding.node.clone());
        if pod.zones.is_some() {
            Arc::make_mut(&mut latest).zones = pod.zones;
        }
        let hooks = self.profiles.hooks();
        hooks.end(Point::PreBind, &pod, PointResult::Success);
        let seen = hooks.pod(Point::Bind, &pod);
        hooks.before(Point::Bind, &seen);
        let profile = self.profiles.get(binding.profile);
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
            return self.fail_binding(uid, text, now);
        };
        if let Stage::Binding(_, found) = &mut binding.stage {
            *found = Some(by);
        }
        let claims = latest.claims;
        let (latest, catalog) = (hooks.pod(Point::PreBind, &latest), self.cluster.catalog());
        let seen_node = hooks.node(Point::PreBind, &latest, &node);
        let plugins = profile.at(Point::PreBind).iter();
        let annotations = plugins.flat_map(|index| {
            let plugin = &profile.plugins()[*index].plugin;
            plugin.annotations(&latest, &seen_node.spec, catalog)
        });
        let mut annotations: Vec<(&'static str, String)> = annotations.collect();
        // What no plugin decided is nothing: it replaces what the pod's author wrote.
        for key in claims.keys() {
            if !annotations.iter().any(|(given, _)| *given == key) {
                annotations.push((key, String::new()));
            }
        }
        self.ready.push_back(Outcome::Bind {
            pod,
            node: node.spec.name.clone(),
            by,
            annotations,
        });
    }

    /// [`super::Input::Bound`]. The binding cycle ends once the API server shows the pod on its node.
    pub(super) fn bound(&mut self, uid: &Name, result: Result<(), String>, now: Timestamp) {
        let Some(binding) = self.binding.get_mut(uid) else {
            return;
        };
        let Stage::Binding(ticket, _) = &binding.stage else {
            return;
        };
        match result {
            Ok(()) => {
                binding.stage = Stage::Bound(ticket.clone());
                let (profile, pod) = (binding.profile, binding.pod.clone());
                let node = binding.node.clone();
                self.post_bind(profile, &pod, &node);
            }
            Err(text) => self.refused(uid, text, Failure::error, now),
        }
    }

    /// The pod was not bound: it waits again.
    pub(super) fn refused(
        &mut self,
        uid: &Name,
        text: String,
        failure: fn(Arc<Pod>, String) -> Failure,
        now: Timestamp,
    ) {
        let Some(binding) = self.binding.get(uid) else {
            return;
        };
        let Stage::Binding(_, by) = &binding.stage else {
            return;
        };
        let text = match by {
            Some(Binder::Plugin(name)) => format!("running Bind plugin \"{name}\": {text}"),
            Some(Binder::Extender(_)) | None => text,
        };
        let failure = failure(binding.pod.clone(), text);
        self.end_and_requeue(uid, failure, now);
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

    /// The API server shows the pod on a node: ends its binding cycle.
    pub(super) fn arrived(&mut self, uid: &str, node: Option<&Name>) {
        let Some(binding) = self.leave(uid) else {
            return;
        };
        let (profile, pod) = (binding.profile, &binding.pod);
        if node != Some(&binding.node.spec.name) {
            self.close(&binding, "the pod was bound to another node");
            self.unreserve(profile, pod, &binding.node.spec);
        } else if matches!(binding.stage, Stage::Binding(..)) {
            // The event came before the result of the binding.
            self.post_bind(profile, pod, &binding.node);
        } else {
            self.close(&binding, "another scheduler bound the pod");
        }
    }

    /// Reports the end of a point that did not finish.
    fn close(&self, binding: &BindingCycle, text: &str) {
        if let Some(point) = binding.open_point() {
            let hooks = self.profiles.hooks();
            hooks.end(point, &binding.pod, PointResult::error(text));
        }
    }

    fn fail_binding(&mut self, uid: &Name, text: String, now: Timestamp) {
        let Some(binding) = self.binding.get(uid) else {
            return;
        };
        let pod = binding.pod.clone();
        self.end_and_requeue(uid, Failure::error(pod, text), now);
    }

    /// Ends the binding cycle; the pod waits again.
    pub(super) fn end_and_requeue(&mut self, uid: &Name, failure: Failure, now: Timestamp) {
        let Some(ticket) = self.end_binding(uid, &failure.message, now) else {
            return;
        };
        if self.wait_again(&failure, &[], ticket, now) {
            self.ready.push_back(Outcome::Park(failure));
        }
    }

    /// Ends the binding cycle and forgets the assumed pod. Returns the pod's ticket, if it has left the queue; `None` if
    /// there was no binding cycle.
    pub(super) fn end_binding(
        &mut self,
        uid: &Name,
        why: &str,
        now: Timestamp,
    ) -> Option<Option<Ticket>> {
        let binding = self.leave(uid)?;
        self.close(&binding, why);
        self.unreserve(binding.profile, &binding.pod, &binding.node.spec);
        // Fails only for a pod that is known to be bound, which has no binding cycle.
        let events = self.cluster.forget(uid).ok()?;
        let audience = Audience {
            but: Some(uid.clone()),
            ..Audience::default()
        };
        self.notify(&events, &audience, now);
        Some(match binding.stage {
            Stage::Waiting(_) => None,
            Stage::Preparing(ticket) | Stage::Binding(ticket, _) | Stage::Bound(ticket) => {
                Some(ticket)
            }
        })
    }

    /// Removes the binding cycle and its deadlines.
    fn leave(&mut self, uid: &str) -> Option<BindingCycle> {
        let (uid, binding) = self.binding.swap_remove_entry(uid)?;
        for (plugin, until, _) in binding.waits() {
            self.held.remove(&(*until, uid.clone(), *plugin));
        }
        Some(binding)
    }

    pub(super) fn binding_as(&self, is_it: impl Fn(&Pod) -> bool) -> Option<&Name> {
        let mut binding = self.binding.iter();
        Some(binding.find(|(_, known)| is_it(&known.pod))?.0)
    }
}

fn point_result<T>(result: &Result<T, Refused>) -> PointResult {
    match result {
        Ok(_) => PointResult::Success,
        Err((.., rejection)) => PointResult::Rejected(rejection.clone()),
    }
}
