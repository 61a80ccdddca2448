//! Get and list of the simulated use (`metrics.k8s.io`).

use std::collections::HashMap;
use std::sync::Arc;

use serde_json::{Value, json};

use super::Call;
use super::read::prefix;
use super::write::now;
use crate::kinds::metrics::{PodUse, Usage, node_metrics, pod_metrics};
use crate::objects::status::Status;
use crate::protocol::media::Representation;
use crate::protocol::options::ListOptions;
use crate::protocol::response::{ApiResponse, Content, metadata_only, table};
use crate::resources::registry::ServedKind;
use crate::resources::selector::Selector;
use crate::store::object::Object;

/// Warnings are headers: more than this many would be too long for some clients.
const MOST_WARNINGS: usize = 10;

pub(super) fn get(call: &Call) -> Result<ApiResponse, Status> {
    let name = &call.path.name;
    let (metrics, warnings) = call.metrics(&|key| key.rsplit('/').next() == Some(name), None)?;
    let mut metrics = metrics.into_iter();
    let mut metrics = metrics.next().ok_or_else(|| call.not_found())?;
    call.name_kind(&mut metrics);
    let content = Content::Value(Some(Arc::clone(&call.served)), metrics);
    Ok(ApiResponse::ok(content).with_warnings(warnings))
}

pub(super) fn list(call: &Call) -> Result<ApiResponse, Status> {
    let options = ListOptions::parse(&call.request.query)?;
    let (labels, fields) = (&options.label_selector, &options.field_selector);
    let selector = Selector::parse(labels, fields, &call.served)?;
    let (items, warnings) = call.metrics(&|_| true, Some(&selector))?;
    let metadata = json!({});
    let list = match call.accept.representation {
        Representation::Whole => json!({
            "kind": call.served.kind.list_kind, "apiVersion": call.served.api_version,
            "metadata": metadata, "items": items,
        }),
        Representation::Metadata | Representation::MetadataList => json!({
            "kind": "PartialObjectMetadataList", "apiVersion": "meta.k8s.io/v1", "metadata": metadata,
            "items": items.iter().map(metadata_only).collect::<Vec<_>>(),
        }),
        Representation::Table => table(&call.served, &items, metadata, call.include),
    };
    Ok(ApiResponse::ok(Content::Value(None, list)).with_warnings(warnings))
}

impl Call {
    fn name_kind(&self, metrics: &mut Value) {
        metrics["kind"] = json!(self.served.kind.kind);
        metrics["apiVersion"] = json!(self.served.api_version);
    }

    /// The metrics of the nodes or pods whose key is wanted.
    fn metrics(
        &self,
        wanted: &dyn Fn(&str) -> bool,
        selector: Option<&Selector>,
    ) -> Result<(Vec<Value>, Vec<String>), Status> {
        let now = now();
        let of_pods = self.served.kind.namespaced;
        let prefix = prefix(self);
        let chosen = |served: &ServedKind, object: &Object| {
            wanted(&object.key) && selector.is_none_or(|it| it.matches(served, object))
        };
        let mut metrics = Vec::new();
        let mut warnings = Vec::new();
        let mut by_node: HashMap<String, Usage> = HashMap::new();
        let (pods, objects) = self.stored("pods", &prefix)?;
        for object in objects.iter().filter(|o| !of_pods || chosen(&pods, o)) {
            // Not the shared parsed form, which would stay in memory.
            let pod = object.to_value();
            let Some(usage) = PodUse::of(&pod) else {
                continue;
            };
            if of_pods {
                metrics.push(pod_metrics(&pod, &usage, &now));
            } else {
                let node = pod["spec"]["nodeName"].as_str().unwrap_or_default();
                by_node
                    .entry(node.to_owned())
                    .or_default()
                    .add(usage.total());
            }
            warnings.extend(usage.warnings);
        }
        if !of_pods {
            let (nodes, objects) = self.stored("nodes", "")?;
            for object in objects.iter().filter(|object| chosen(&nodes, object)) {
                let usage = by_node.get(&*object.key).copied().unwrap_or_default();
                metrics.push(node_metrics(&object.to_value(), usage, &now));
            }
        }
        warnings.truncate(MOST_WARNINGS);
        Ok((metrics, warnings))
    }

    /// The stored objects of a core kind.
    fn stored(
        &self,
        plural: &str,
        prefix: &str,
    ) -> Result<(Arc<ServedKind>, Vec<Arc<Object>>), Status> {
        let registry = self.server.registry();
        let served = registry
            .find_resource("", plural)
            .ok_or_else(Status::no_such_resource)?;
        let snapshot = self.server.store.scan(served.table, prefix, "");
        Ok((Arc::clone(served), snapshot.objects))
    }
}
