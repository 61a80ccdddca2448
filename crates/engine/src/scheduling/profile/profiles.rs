//! All profiles of a scheduler, which share one queue: the profile of a pod, the order of the queue, queueing hints.

use std::sync::Arc;

use super::{Profile, Rejectors};
use crate::model::{Name, Pod, Timestamp};
use crate::scheduling::framework::{
    Actions, Catalog, Changed, Event, EventPattern, Kind, Point, Rejection,
};
use crate::scheduling::hooks::{Hooks, PointResult};

/// The name under which rejections by extenders are recorded.
pub const EXTENDER: &str = "Extender";

/// All profiles of a scheduler: at least one, with unique names.
#[derive(Clone)]
pub struct Profiles {
    all: Vec<Profile>,
    /// Per profile, the events that each plugin that can reject a pod listens to.
    listeners: Vec<Vec<Listener>>,
    hooks: Hooks,
}

#[derive(Clone)]
struct Listener {
    name: &'static str,
    /// Position among the profile's plugins; `None` for extenders, which give no hints.
    plugin: Option<usize>,
    patterns: Vec<EventPattern>,
    /// Events that help without a hint of the plugin.
    always: Vec<EventPattern>,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ProfilesError {
    #[error("no profile is configured: at least one is required")]
    None,
    #[error("two profiles have the name `{0}`: scheduler names must be unique")]
    Repeated(Name),
    #[error(
        "profile `{profile}` has queue sort plugins [{found}]: exactly one is required, the same in all profiles"
    )]
    QueueSort { profile: Name, found: String },
    #[error("profile `{0}` has no bind plugin: at least one is required")]
    NoBinder(Name),
}

/// When to retry a rejected pod after an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Hint {
    Skip,
    AfterBackoff,
    Immediately,
}

impl Profiles {
    pub fn new(all: Vec<Profile>) -> Result<Self, ProfilesError> {
        let sorters = |profile: &Profile| {
            let names = profile.at(Point::QueueSort).iter();
            names
                .map(|index| profile.plugins()[*index].name)
                .collect::<Vec<_>>()
        };
        let first = sorters(all.first().ok_or(ProfilesError::None)?);
        for (index, profile) in all.iter().enumerate() {
            let name = &profile.scheduler_name;
            if all[..index]
                .iter()
                .any(|other| other.scheduler_name == *name)
            {
                return Err(ProfilesError::Repeated(name.clone()));
            }
            let found = sorters(profile);
            if found.len() != 1 || found != first {
                return Err(ProfilesError::QueueSort {
                    profile: name.clone(),
                    found: found.join(", "),
                });
            }
            if profile.at(Point::Bind).is_empty() {
                return Err(ProfilesError::NoBinder(name.clone()));
            }
        }
        let listeners = all.iter().map(listeners).collect();
        Ok(Self {
            all,
            listeners,
            hooks: Hooks::default(),
        })
    }

    /// These profiles with hooks around the extension points.
    pub fn with_hooks(mut self, hooks: Hooks) -> Self {
        self.hooks = hooks;
        self
    }

    pub(crate) fn hooks(&self) -> &Hooks {
        &self.hooks
    }

    pub fn get(&self, index: usize) -> &Profile {
        &self.all[index]
    }

    pub fn iter(&self) -> impl Iterator<Item = &Profile> {
        self.all.iter()
    }

    /// The profile of a scheduler name; `None` if this scheduler has none.
    pub fn find(&self, scheduler_name: &str) -> Option<usize> {
        self.all
            .iter()
            .position(|profile| *profile.scheduler_name == *scheduler_name)
    }

    /// QueueSort: whether `a` comes before `b`.
    pub fn goes_before(&self, a: (&Arc<Pod>, Timestamp), b: (&Arc<Pod>, Timestamp)) -> bool {
        let profile = &self.all[0];
        let order = |x: &Pod, y: &Pod| {
            let mut at = profile.at(Point::QueueSort).iter();
            at.any(|index| {
                let plugin = &profile.plugins()[*index].plugin;
                plugin.goes_before((x, a.1), (y, b.1))
            })
        };
        let (point, fine) = (Point::QueueSort, |_: &bool| PointResult::Success);
        let with_a = |x: &Arc<Pod>| self.hooks.around(point, b.0, |y| order(x, y), fine);
        self.hooks.around(point, a.0, with_a, fine)
    }

    /// PreEnqueue: the plugin that gates the pod, if any. The one that gated it last time runs first.
    pub fn gate(
        &self,
        profile: usize,
        pod: &Arc<Pod>,
        catalog: &Catalog,
        last: Option<&'static str>,
    ) -> Option<&'static str> {
        let profile = &self.all[profile];
        let enabled = || {
            let at = profile.at(Point::PreEnqueue).iter();
            at.map(|index| &profile.plugins()[*index])
        };
        let first = enabled().filter(|plugin| Some(plugin.name) == last);
        let others = enabled().filter(|plugin| Some(plugin.name) != last);
        let ask = |pod: &Arc<Pod>| {
            first.chain(others).find_map(|enabled| {
                let rejection = enabled.plugin.pre_enqueue(pod, catalog).err()?;
                Some((enabled.name, rejection))
            })
        };
        let result = |kept: &Option<(&str, Rejection)>| match kept {
            Some((_, rejection)) => PointResult::Rejected(rejection.clone()),
            None => PointResult::Success,
        };
        let kept = self.hooks.around(Point::PreEnqueue, pod, ask, result);
        kept.map(|(name, _)| name)
    }

    /// Whether any plugin listens to the event.
    pub fn wants(&self, event: &Event) -> bool {
        is_for_all(event)
            || self
                .listeners
                .iter()
                .flatten()
                .any(|listener| listener.hears(event))
    }

    /// Whether one of these plugins listens to the event.
    pub fn any_hears(&self, profile: usize, plugins: &[&'static str], event: &Event) -> bool {
        is_for_all(event)
            || self.listeners[profile]
                .iter()
                .any(|listener| plugins.contains(&listener.name) && listener.hears(event))
    }

    /// The queueing hint of an event for a pod that these plugins rejected.
    pub fn hint(
        &self,
        profile: usize,
        rejectors: &Rejectors,
        pod: &Pod,
        event: &Event,
        catalog: &Catalog,
    ) -> Hint {
        if let Changed::Anything { pod: meant } = &event.changed {
            return match meant {
                Some(uid) if *uid != pod.uid => Hint::Skip,
                _ => Hint::AfterBackoff,
            };
        }
        let pending = &rejectors.pending;
        let is_of_other = event.changed.pod().is_some() && !event.changed.is_update_of(pod);
        let mut hint = Hint::Skip;
        for listener in &self.listeners[profile] {
            if !rejectors.plugins.contains(&listener.name) || !listener.hears(event) {
                continue;
            }
            let plugin = listener
                .plugin
                .map(|index| &self.all[profile].plugins()[index].plugin);
            let needs_nodes = rejectors.is_unresolvable
                && plugin.is_some_and(|plugin| !plugin.other_pods_help_unresolvable());
            if is_of_other && needs_nodes {
                continue;
            }
            let helps = listener.always.iter().any(|always| always.matches(event))
                || plugin.is_none_or(|plugin| plugin.helps(pod, event, catalog));
            if helps && pending.contains(&listener.name) {
                return Hint::Immediately;
            }
            if helps {
                hint = Hint::AfterBackoff;
                if pending.is_empty() {
                    break;
                }
            }
        }
        hint
    }
}

fn is_for_all(event: &Event) -> bool {
    event.changed.kind().is_none()
}

impl Listener {
    fn hears(&self, event: &Event) -> bool {
        self.patterns
            .iter()
            .chain(&self.always)
            .any(|pattern| pattern.matches(event))
    }
}

fn listeners(profile: &Profile) -> Vec<Listener> {
    use Point::{Filter, Permit, PreEnqueue, PreFilter, Reserve};
    let rejects = |index: usize| {
        [PreEnqueue, PreFilter, Filter, Reserve, Permit]
            .into_iter()
            .any(|point| profile.at(point).contains(&index))
    };
    let plugins = profile.plugins().iter().enumerate();
    let mut all: Vec<Listener> = plugins
        .filter(|(index, _)| rejects(*index))
        .map(|(index, enabled)| {
            let patterns = enabled.plugin.events();
            let on_nodes = |actions: Actions| {
                patterns.iter().any(|pattern| {
                    pattern.kind == Kind::Node && pattern.actions.intersects(actions)
                })
            };
            // A new node may become usable only when its first taints are removed, so plugins that listen to new nodes
            // also listen to taints.
            let always = if on_nodes(Actions::ADD) && !on_nodes(Actions::NODE_TAINT) {
                vec![EventPattern::new(Kind::Node, Actions::NODE_TAINT)]
            } else {
                Vec::new()
            };
            Listener {
                name: enabled.name,
                plugin: Some(index),
                patterns,
                always,
            }
        })
        .collect();
    all.push(Listener {
        name: EXTENDER,
        plugin: None,
        patterns: EventPattern::anything(),
        always: Vec::new(),
    });
    all
}
