//! ControllerRevisions: the templates of a StatefulSet or DaemonSet over time.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::Deserialize;
use serde_json::Value;

super::kind!(ControllerRevision, "apps", "controllerrevisions");

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct ControllerRevision {
    pub(crate) metadata: ObjectMeta,
    /// A patch that restores the template.
    pub(crate) data: Value,
    pub(crate) revision: i64,
}

impl ControllerRevision {
    pub(crate) fn name(&self) -> &str {
        self.metadata.name.as_deref().unwrap_or_default()
    }

    pub(crate) fn template(&self) -> Value {
        let mut template = self.data["spec"]["template"].clone();
        if let Some(fields) = template.as_object_mut() {
            fields.remove("$patch");
        }
        template
    }
}
