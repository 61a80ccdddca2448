//! Lists of reclaimed resources in the arguments of plugins.

use super::resource_strategy::{Usage, WeightedResource};
use crate::model::{Reclaimed, ReclaimedResource};
use crate::scheduling::framework::{ArgsError, Part, Plan};

/// An empty list means all reclaimed resources; a weight of 0 means 1.
pub(super) fn complete(resources: &mut Vec<WeightedResource>) {
    if resources.is_empty() {
        let all = ReclaimedResource::ALL.map(|resource| WeightedResource {
            name: resource.name().to_owned(),
            weight: 1,
        });
        *resources = all.to_vec();
    }
    WeightedResource::complete(resources);
}

/// Resources with their weights. Other names, and one resource under both its names, are errors.
pub(super) fn reclaimed_resources(
    given: &[WeightedResource],
    field: &str,
    errors: &mut Vec<ArgsError>,
) -> Vec<(ReclaimedResource, i64)> {
    let mut all: Vec<(ReclaimedResource, i64)> = Vec::new();
    for (i, WeightedResource { name, weight }) in given.iter().enumerate() {
        let fault = match ReclaimedResource::parse(name) {
            None => {
                let allowed = ReclaimedResource::ALL.map(|r| format!("\"{}\"", r.name()));
                let allowed = allowed.join(", ");
                format!("Unsupported value: \"{name}\": supported values: {allowed}")
            }
            Some(resource) if all.iter().any(|(known, _)| *known == resource) => {
                format!("Duplicate value: \"{name}\"")
            }
            Some(resource) => {
                all.push((resource, *weight));
                continue;
            }
        };
        errors.push(ArgsError::new(format!("{field}[{i}].name"), fault));
    }
    all
}

/// The usage of a reclaimed resource with one more pod.
pub(super) fn usage(
    plan: &mut Plan,
    resource: ReclaimedResource,
    taken: Part,
    added: Reclaimed,
    weight: i64,
) -> Usage {
    Usage {
        allocatable: plan.reclaimed_column(resource, Part::Allocatable),
        requested: plan.reclaimed_column(resource, taken),
        added: added.get(resource),
        weight,
    }
}
