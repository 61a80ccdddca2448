//! A kind as the server sees it: its names, its verbs and its rules.
//!
//! Built-in kinds (`kinds/`) and custom ones (`custom/`) fill the same [`Kind`]; the request path
//! (`handlers/`) names no kind.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;

use crate::objects::schema::Schema;
use crate::objects::status::{FieldError, Status};

/// A name that is written in the source for built-in kinds and comes from a CRD for others.
pub(crate) type Name = Cow<'static, str>;

/// One served resource.
#[derive(Clone)]
pub(crate) struct Kind {
    pub(crate) group: Name,
    pub(crate) version: Name,
    pub(crate) plural: Name,
    pub(crate) singular: Name,
    pub(crate) kind: Name,
    pub(crate) list_kind: Name,
    pub(crate) short_names: Vec<Name>,
    pub(crate) categories: Vec<Name>,
    pub(crate) namespaced: bool,
    /// Sorted, as discovery shows them.
    pub(crate) verbs: Vec<&'static str>,
    pub(crate) subresources: Vec<Subresource>,
    /// Field names, list types and merge keys, for decoding, patches and server-side apply.
    pub(crate) schema: Schema,
    pub(crate) rules: Arc<dyn Rules>,
    /// The paths that the `scale` subresource uses.
    pub(crate) scale: Option<ScalePaths>,
    /// Set if another kind stores the objects and this one only converts them.
    pub(crate) alias: Option<Alias>,
    /// The warning of every response about a kind that has a successor.
    pub(crate) deprecated: Option<&'static str>,
    /// A deletion is answered with the object instead of a `Status`.
    pub(crate) returns_deleted: bool,
}

/// Dotted paths into the parent object.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ScalePaths {
    pub(crate) spec_replicas: Name,
    pub(crate) status_replicas: Name,
    /// A label selector, as an object, a plain map of labels or the text that `Scale` shows.
    pub(crate) selector: Option<Name>,
}

/// Another view of objects that are stored under `group`/`plural`: events have two.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Alias {
    pub(crate) group: &'static str,
    pub(crate) plural: &'static str,
    pub(crate) to_stored: fn(Value) -> Value,
    pub(crate) from_stored: fn(&Value) -> Value,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Subresource {
    /// `status`, `scale`, `binding`, ...
    pub(crate) name: Name,
    /// `(group, version, kind)` where the body is of another kind than the parent.
    pub(crate) body: Option<(Name, Name, Name)>,
    pub(crate) verbs: Vec<&'static str>,
}

impl Kind {
    pub(crate) fn api_version(&self) -> String {
        if self.group.is_empty() {
            self.version.to_string()
        } else {
            format!("{}/{}", self.group, self.version)
        }
    }
}

/// Reads other objects while a request is admitted (priority classes, namespaces, ...).
pub(crate) trait Lookup {
    /// The stored object, or `None`; `namespace` is empty for cluster-scoped kinds.
    fn get(&self, group: &str, plural: &str, namespace: &str, name: &str) -> Option<Arc<Value>>;
    fn list(&self, group: &str, plural: &str, namespace: &str) -> Vec<Arc<Value>>;
}

/// The type of a write: the rules of a kind depend on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Write<'a> {
    Create,
    Update,
    /// A write through a subresource such as `status`, `scale` or `resize`.
    Subresource(&'a str),
}

/// The behaviour of a kind. The handlers call, in this order: `default`, `admit`, the mutating webhooks (after a
/// change `default` and `admit` again), `prepare`, `validate`, `admit_valid`, the validating webhooks. An update is
/// prepared before it is admitted too, because field owners depend on it.
///
/// Objects arrive decoded: known fields only, quantities canonical. What only the server writes
/// (`uid`, `creationTimestamp`, on update the stored `generation`) is in `metadata` before `default`.
pub(crate) trait Rules: Send + Sync {
    /// Sets the defaults of absent fields.
    fn default(&self, _object: &mut Value) {}

    /// Restores what this write may not change (status on the main path, spec on `status`), and counts
    /// `metadata.generation`. `old` is `None` on create.
    fn prepare(&self, _object: &mut Value, _old: Option<&Value>, _write: Write<'_>) {}

    /// Admission: may change the object by looking at others, or refuse it. A second call after a change by a
    /// webhook must accept what the first call wrote.
    fn admit(
        &self,
        _object: &mut Value,
        _old: Option<&Value>,
        _write: Write<'_>,
        _others: &dyn Lookup,
    ) -> Result<(), Status> {
        Ok(())
    }

    fn validate(
        &self,
        _object: &Value,
        _old: Option<&Value>,
        _write: Write<'_>,
    ) -> Vec<FieldError> {
        Vec::new()
    }

    /// Admission of the valid and final object: may only refuse it.
    fn admit_valid(
        &self,
        _object: &Value,
        _write: Write<'_>,
        _others: &dyn Lookup,
    ) -> Result<(), Status> {
        Ok(())
    }

    /// What is wrong with a name; most kinds take DNS subdomains.
    fn check_name(&self, name: &str) -> Option<String> {
        crate::objects::names::dns_subdomain(name)
    }

    /// The `Warning` headers of a write; called for valid objects.
    fn warnings(&self, _object: &Value, _old: Option<&Value>) -> Vec<String> {
        Vec::new()
    }

    /// Field selectors besides `metadata.name` and `metadata.namespace`.
    fn selectable_fields(&self) -> Vec<Name> {
        Vec::new()
    }

    /// The value a field selector compares, `None` when the field is not supported.
    fn field(&self, object: &Value, path: &str) -> Option<String>;

    /// The error message for a field selector that is not supported.
    fn unknown_field(&self, path: &str) -> String {
        match self.selectable_fields().is_empty() && !self.is_custom() {
            true => format!(
                "{path:?} is not a known field selector: only \"metadata.name\", \"metadata.namespace\""
            ),
            false => format!("field label not supported: {path}"),
        }
    }

    /// PUT of a missing object creates it (leases, events, services).
    fn creates_on_update(&self) -> bool {
        false
    }

    /// PUT without a resourceVersion overwrites.
    fn allows_unconditional_update(&self) -> bool {
        true
    }

    /// The grace period of a deletion in seconds; `asked` is the one in the request.
    fn grace_seconds(&self, _object: &Value, _asked: Option<i64>) -> Option<i64> {
        None
    }

    /// Deleting without a propagation policy orphans the dependents (jobs, replication controllers).
    fn orphans_by_default(&self) -> bool {
        false
    }

    /// Warnings that come back as headers of a deletion without a propagation policy.
    fn delete_warnings(&self) -> Vec<String> {
        Vec::new()
    }

    /// Whether this object may be deleted at all.
    fn admit_delete(&self, _object: &Value) -> Result<(), Status> {
        Ok(())
    }

    /// Called once, when `deletionTimestamp` is set: a namespace becomes Terminating, a CRD gets
    /// its clean-up finalizer.
    fn begin_delete(&self, _object: &mut Value) {}

    /// Keeps a deleted object although `metadata.finalizers` is empty (`spec.finalizers` of a
    /// namespace). Called before the deletion too, to find kinds that are deleted in several steps.
    fn holds_back_delete(&self, _object: &Value) -> bool {
        false
    }

    /// How long an object is kept after its last write; `None` keeps it (all kinds except events).
    fn time_to_live(&self) -> Option<Duration> {
        None
    }

    /// What a bookmark shows besides metadata: the zero value of the kind's structs.
    fn zero_fields(&self) -> Vec<(&'static str, Value)> {
        Vec::new()
    }

    /// The kind comes from a CRD: list items carry their kind, and strategic patches are refused.
    fn is_custom(&self) -> bool {
        false
    }

    /// Columns of `kubectl get`.
    fn columns(&self) -> Vec<Column>;

    /// The real server has specific columns for this kind; for other kinds it writes `null`
    /// instead of an empty list of rows.
    fn has_own_columns(&self) -> bool {
        true
    }

    /// One row, a cell per column; `now` is for ages.
    fn cells(&self, object: &Value, now: jiff::Timestamp) -> Vec<Value>;

    /// The conditions of a row: finished pods have `Completed`.
    fn row_conditions(&self, _object: &Value) -> Vec<Value> {
        Vec::new()
    }
}

/// A column of a `Table`.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Column {
    pub(crate) name: Name,
    /// `string`, `integer`, `boolean`, `date`, ...
    pub(crate) kind: Name,
    pub(crate) format: Name,
    pub(crate) description: Name,
    /// 0 is always shown, 1 with `-o wide`.
    pub(crate) priority: i32,
}
