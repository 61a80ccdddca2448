//! What may help the pod: the events of `e2e/oracle-kube/hints.go`, in its order, made by the engine's own cluster.

use std::collections::BTreeMap;
use std::sync::Arc;

use anyhow::Result;
use api::parse::{self, Manifest};
use engine::cluster::Cluster;
use engine::cluster::kinds::{Kind, Update, pod_actions};
use engine::model::Pod;
use engine::scheduling::framework::{Change, Changed, Event, Point};
use engine::scheduling::profile::Profile;
use engine::scheduling::queue::Cause;

use super::world::World;
use crate::verdicts::Hint;

pub(super) fn hints(profile: &Profile, quiet: &Cluster, world: &World) -> Result<Vec<Hint>> {
    let hint = |(event, object): (Event, String)| Hint {
        event: format!("{} {object}", Cause::from(&event)),
        helps: helped(profile, quiet, &world.pod, &event),
    };
    Ok(happenings(quiet, world)?.into_iter().map(hint).collect())
}

/// Plugins that can reject a pod and for which the event may make a difference.
fn helped(profile: &Profile, quiet: &Cluster, pod: &Pod, event: &Event) -> BTreeMap<String, bool> {
    use Point::{Filter, Permit, PreEnqueue, PreFilter, Reserve};
    let rejects = |index: usize| {
        [PreEnqueue, PreFilter, Filter, Reserve, Permit]
            .into_iter()
            .any(|point| profile.at(point).contains(&index))
    };
    let mut helped = BTreeMap::new();
    for (index, enabled) in profile.plugins().iter().enumerate() {
        let plugin = &enabled.plugin;
        let hears = plugin.events().iter().any(|pattern| pattern.matches(event));
        if rejects(index) && hears && plugin.helps(pod, event, quiet.catalog()) {
            helped.insert(enabled.name.to_owned(), true);
        }
    }
    helped
}

fn happenings(quiet: &Cluster, world: &World) -> Result<Vec<(Event, String)>> {
    let mut all = Vec::new();
    let quiet = &mut quiet.clone();
    for (kind, objects) in &world.objects {
        // The oracle makes no events of reports.
        if *kind != Kind::CustomNodeResource {
            come_and_go(quiet, *kind, objects, &mut all)?;
        }
    }
    let pods = world.objects.iter().flat_map(|(_, objects)| objects);
    let pods = pods.filter(|object| matches!(object, Manifest::Pod(_)));
    for other in pods {
        let incoming = Manifest::Pod(world.question.pod.clone());
        let Manifest::Pod(mut changed) = in_place_of(other, &incoming) else {
            continue;
        };
        changed.spec.node_name.clear();
        let (old, new) = (world.pod.clone(), Arc::new(parse::pod(&changed)?));
        let events = pod_actions(&old, &new).into_iter().map(|actions| Event {
            actions,
            changed: Changed::WaitingPod(Change {
                old: Some(old.clone()),
                new: Some(new.clone()),
            }),
        });
        all.extend(events.map(|event| (event, world.pod.name.to_string())));
    }
    Ok(all)
}

/// Every object comes, turns into the next of its kind, and goes. Of kinds that make no events nothing comes of it.
fn come_and_go(
    cluster: &mut Cluster,
    kind: Kind,
    objects: &[Manifest],
    all: &mut Vec<(Event, String)>,
) -> Result<()> {
    for (i, manifest) in objects.iter().enumerate() {
        let parse = |manifest: &Manifest| manifest.parse(&mut Vec::new());
        let changed = in_place_of(&objects[(i + 1) % objects.len()], manifest);
        let object = parse(manifest)?;
        let deleted = || Update::Delete(kind, object.key());
        let mut events = Vec::new();
        cluster.apply(deleted())?;
        events.extend(cluster.apply(object.clone().into())?);
        events.extend(cluster.apply(parse(&changed)?.into())?);
        cluster.apply(object.clone().into())?;
        events.extend(cluster.apply(deleted())?);
        cluster.apply(object.clone().into())?;
        let named = |event| (event, manifest.metadata().name.clone());
        all.extend(events.into_iter().map(named));
    }
    Ok(())
}

/// This object under the name of another; a pod on the other's node, too.
fn in_place_of(object: &Manifest, other: &Manifest) -> Manifest {
    let mut changed = object.clone();
    let (meta, of) = (changed.metadata_mut(), other.metadata());
    meta.name.clone_from(&of.name);
    meta.namespace.clone_from(&of.namespace);
    meta.uid.clone_from(&of.uid);
    if let (Manifest::Pod(changed), Manifest::Pod(other)) = (&mut changed, other) {
        changed.spec.node_name.clone_from(&other.spec.node_name);
    }
    changed
}
