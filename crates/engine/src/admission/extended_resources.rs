//! The annotation with the tier resources of each container, for agents that see a container without its pod.

use serde_json::{Map, Value};

use super::fields::{annotation, name};
use super::keys::EXTENDED_RESOURCES;
use super::resources::{ResourceField, object_in};
use super::{Mutation, Refused};
use crate::model::{Quantity, TierAccount};

/// Bytes of all annotations of an object, for the API server.
const LONGEST: usize = 256 << 10;

/// Writes the annotation if app containers name resources of Koordinator's tiers and it does not say so yet. Without such resources
/// it would be the author's word only, and goes.
pub(super) fn annotate(change: &mut Mutation) -> Result<(), Refused> {
    let mut containers = Map::new();
    for container in change.pod["spec"]["containers"]
        .as_array()
        .into_iter()
        .flatten()
    {
        let mut lists = Map::new();
        for kind in [ResourceField::Limits, ResourceField::Requests] {
            let names = container["resources"][kind.field()].as_object();
            let mut tier: Vec<_> = names
                .into_iter()
                .flatten()
                .filter(|(name, _)| is_koordinator(name))
                .map(|(name, quantity)| (name.clone(), quantity.clone()))
                .collect();
            tier.sort_by(|a, b| a.0.cmp(&b.0));
            if !tier.is_empty() {
                lists.insert(
                    kind.field().to_owned(),
                    tier.into_iter().collect::<Map<_, _>>().into(),
                );
            }
        }
        if !lists.is_empty() {
            containers.insert(name(container).to_owned(), lists.into());
        }
    }
    if containers.is_empty() {
        remove(change);
        return Ok(());
    }
    let count = containers.len();
    containers.sort_keys();
    let wanted = serde_json::json!({"containers": containers});
    let known = annotation(&change.pod, EXTENDED_RESOURCES);
    let known = known.and_then(|text| serde_json::from_str::<Value>(text).ok());
    if known.is_some_and(|known| is_same(&known, &wanted)) {
        return Ok(());
    }
    let text = wanted.to_string();
    if text.len() > LONGEST {
        return Err(Refused::one(format!(
            "the pod has {count} containers with tier resources, which need {} bytes in the annotation {EXTENDED_RESOURCES}: at most \
             {LONGEST} are allowed; use fewer containers",
            text.len()
        )));
    }
    if let Some(metadata) = change.pod["metadata"].as_object_mut() {
        object_in(metadata, "annotations").insert(EXTENDED_RESOURCES.to_owned(), text.into());
        let reason =
            format!("the annotation {EXTENDED_RESOURCES} has the tier resources of each container");
        change.reasons.push(reason);
    }
    Ok(())
}

fn remove(change: &mut Mutation) {
    let annotations = change.pod.pointer_mut("/metadata/annotations");
    let removed = annotations
        .and_then(Value::as_object_mut)
        .and_then(|all| all.shift_remove(EXTENDED_RESOURCES));
    if removed.is_some() {
        let reason = format!(
            "the annotation {EXTENDED_RESOURCES} goes: no container names resources of a tier"
        );
        change.reasons.push(reason);
    }
}

fn is_koordinator(resource: &str) -> bool {
    matches!(
        TierAccount::of(resource),
        Some(TierAccount::Mid | TierAccount::Batch)
    )
}

/// Whether both have the same amounts: the API server may write a quantity in another way, such as 1k for 1000.
fn is_same(known: &Value, wanted: &Value) -> bool {
    match (known, wanted) {
        (Value::Object(known), Value::Object(wanted)) => {
            let is_same =
                |(key, wanted)| known.get(key).is_some_and(|known| is_same(known, wanted));
            known.len() == wanted.len() && wanted.iter().all(is_same)
        }
        (Value::String(known), Value::String(wanted)) => {
            Quantity::parse(known).is_ok_and(|known| Quantity::parse(wanted) == Ok(known))
        }
        _ => known == wanted,
    }
}
