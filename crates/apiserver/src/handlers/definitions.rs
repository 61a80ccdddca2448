//! Updates the served custom kinds after a change to a CustomResourceDefinition.
//!
//! In the real server controllers do this shortly after the write; here it is part of the write.

use std::sync::Arc;

use jiff::Timestamp;
use serde_json::Value;

use crate::custom::{self, CLEANUP_FINALIZER};
use crate::handlers;
use crate::objects::fields::{at, open, put, text};
use crate::objects::managed_fields::{self, Writer};
use crate::resources::registry::ServedKind;
use crate::resources::state::ServerState;
use crate::store::Conflict;
use crate::store::object::{Change, Object};

const GROUP: &str = "apiextensions.k8s.io";
const PLURAL: &str = "customresourcedefinitions";

/// Whether a write of this kind can change what is served.
pub(crate) fn concerns(server: &ServerState, served: &ServedKind) -> bool {
    let kind = &served.kind;
    (kind.group == GROUP && kind.plural == PLURAL)
        || (served.custom && server.is_closing(&kind.group, &kind.plural))
}

/// Accepts or refuses names, deletes the objects of deleted definitions and serves established ones.
pub(crate) fn refresh(server: &Arc<ServerState>) {
    let registry = server.registry();
    let Some(served) = registry.find_resource(GROUP, PLURAL) else {
        return;
    };
    // Two at once could leave the older view of the kinds.
    let _one_at_a_time = server.lock_definitions();
    // Each round changes at least one definition permanently, so this ends.
    while step(server, served) {}
    let definitions = stored(server, served);
    let kinds = definitions
        .iter()
        .flat_map(|(_, definition)| custom::kinds(definition));
    server.set_custom_kinds(kinds.collect());
    let closing = definitions
        .iter()
        .filter(|(_, definition)| is_closing(definition));
    let closing = closing.map(|(_, definition)| identity(definition));
    server.set_closing(closing.collect());
}

fn stored(server: &ServerState, served: &ServedKind) -> Vec<(Arc<Object>, Value)> {
    let snapshot = server.store.scan(served.table, "", "");
    let values = snapshot.objects.into_iter();
    values
        .map(|object| (Arc::clone(&object), served.value(&object)))
        .collect()
}

fn identity(definition: &Value) -> (String, String) {
    let (group, plural) = (
        text(definition, "spec.group"),
        text(definition, "spec.names.plural"),
    );
    (group.to_owned(), plural.to_owned())
}

fn is_closing(definition: &Value) -> bool {
    !at(definition, "metadata.deletionTimestamp").is_null()
}

/// Makes one change that the definitions need; returns whether there was one.
fn step(server: &Arc<ServerState>, served: &Arc<ServedKind>) -> bool {
    let definitions = stored(server, served);
    let now = Timestamp::now();
    let time = handlers::format_time(now);
    for (current, definition) in &definitions {
        if is_closing(definition) {
            if end(server, served, current, definition) {
                return true;
            }
            continue;
        }
        let all = definitions.iter().map(|(_, definition)| definition);
        if let Some(status) = custom::judge(definition, all, &time) {
            let mut judged = definition.clone();
            judged["status"] = status;
            let writer = Writer {
                manager: handlers::SERVER,
                api_version: &served.api_version,
                subresource: "status",
                has_status: true,
                now,
            };
            managed_fields::update(&served.kind.schema, Some(definition), &mut judged, &writer);
            let draft = served.draft(Change::Modified, &judged);
            // A definition that changed meanwhile is checked again in the next round.
            return match server.store.replace(served.table, current, draft) {
                Ok(_) | Err(Conflict) => true,
            };
        }
    }
    false
}

/// Deletes the objects of a definition that is being deleted, and the definition when none is left.
fn end(
    server: &Arc<ServerState>,
    served: &Arc<ServedKind>,
    current: &Arc<Object>,
    definition: &Value,
) -> bool {
    let finalizers = at(definition, "metadata.finalizers").as_array();
    let others: Vec<Value> = finalizers
        .into_iter()
        .flatten()
        .filter(|finalizer| *finalizer != CLEANUP_FINALIZER)
        .cloned()
        .collect();
    if finalizers.is_none_or(|all| all.len() == others.len()) {
        return false;
    }
    let (group, plural) = identity(definition);
    let registry = server.registry();
    if let Some(objects) = registry
        .find_resource(&group, &plural)
        .filter(|kind| kind.custom)
        && !handlers::delete_all(server, objects)
    {
        // Some wait for their own finalizers; the removal of the last one calls this again.
        return false;
    }
    if others.is_empty() {
        return match server.store.remove(served.table, current) {
            Ok(_) | Err(Conflict) => true,
        };
    }
    let mut rest = definition.clone();
    if let Some(fields) = rest.as_object_mut() {
        put(
            open(fields, "metadata"),
            "finalizers",
            Some(&Value::Array(others)),
        );
    }
    let draft = served.draft(Change::Modified, &rest);
    match server.store.replace(served.table, current, draft) {
        Ok(_) | Err(Conflict) => true,
    }
}
