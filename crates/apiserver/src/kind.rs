//! What the server knows about a kind: its names, its verbs and the rules that set it apart.
//!
//! Built-in kinds (`kinds/`) and custom ones (`custom/`) fill the same [`Kind`]; the request path
//! (`handlers/`) knows no kind by name.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;

use crate::schema::Schema;
use crate::status::{FieldError, Status};

/// A name that is written in the source for built-in kinds and comes from a CRD for others.
pub type Name = Cow<'static, str>;

/// One served resource.
#[derive(Clone)]
pub struct Kind {
    pub group: Name,
    pub version: Name,
    pub plural: Name,
    pub singular: Name,
    pub kind: Name,
    pub list_kind: Name,
    pub short_names: Vec<Name>,
    pub categories: Vec<Name>,
    pub namespaced: bool,
    /// Sorted, as discovery shows them.
    pub verbs: Vec<&'static str>,
    pub subresources: Vec<Subresource>,
    /// Field names, list types and merge keys, for decoding, patches and server-side apply.
    pub schema: Schema,
    pub rules: Arc<dyn Rules>,
    /// Where the `scale` subresource finds its numbers.
    pub scale: Option<ScalePaths>,
    /// Set where the objects are kept by another kind and only converted here.
    pub alias: Option<Alias>,
}

/// Dotted paths into the parent object.
#[derive(Debug, Clone, PartialEq)]
pub struct ScalePaths {
    pub spec_replicas: Name,
    pub status_replicas: Name,
    /// A label selector, as an object, a plain map of labels or the text that `Scale` shows.
    pub selector: Option<Name>,
}

/// Another view of objects that are stored under `group`/`plural`: events have two.
#[derive(Debug, Clone, Copy)]
pub struct Alias {
    pub group: &'static str,
    pub plural: &'static str,
    pub to_stored: fn(Value) -> Value,
    pub from_stored: fn(&Value) -> Value,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Subresource {
    /// `status`, `scale`, `binding`, ...
    pub name: Name,
    /// `(group, version, kind)` where the body is of another kind than the parent.
    pub body: Option<(Name, Name, Name)>,
    pub verbs: Vec<&'static str>,
}

impl Kind {
    pub fn api_version(&self) -> String {
        if self.group.is_empty() {
            self.version.to_string()
        } else {
            format!("{}/{}", self.group, self.version)
        }
    }
}

/// Reads other objects while a request is admitted (priority classes, namespaces, ...).
pub trait Lookup {
    /// The stored object, or `None`; `namespace` is empty for cluster-scoped kinds.
    fn get(&self, group: &str, plural: &str, namespace: &str, name: &str) -> Option<Arc<Value>>;
    fn list(&self, group: &str, plural: &str, namespace: &str) -> Vec<Arc<Value>>;
}

/// What is being written: the rules of a kind differ by it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Write<'a> {
    Create,
    Update,
    /// A write through a subresource such as `status`, `scale` or `resize`.
    Subresource(&'a str),
}

/// What sets a kind apart. The request path calls, in this order: `default`, `prepare`, `admit`, `validate`.
///
/// Objects arrive decoded: known fields only, quantities canonical. What only the server writes
/// (`uid`, `creationTimestamp`, on update the stored `generation`) is in `metadata` before `default`.
pub trait Rules: Send + Sync {
    /// Fills in what the client left out.
    fn default(&self, _object: &mut Value) {}

    /// Keeps what this write may not touch (status on the main path, spec on `status`), and counts
    /// `metadata.generation`. `old` is `None` on create.
    fn prepare(&self, _object: &mut Value, _old: Option<&Value>, _write: Write<'_>) {}

    /// Admission: may change the object by looking at others, or refuse it.
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

    /// What is wrong with a name; most kinds take DNS subdomains.
    fn check_name(&self, name: &str) -> Option<String> {
        crate::names::dns_subdomain(name)
    }

    /// What comes back as `Warning` headers of a write; asked about objects that are valid.
    fn warnings(&self, _object: &Value, _old: Option<&Value>) -> Vec<String> {
        Vec::new()
    }

    /// Field selectors besides `metadata.name` and `metadata.namespace`.
    fn selectable_fields(&self) -> Vec<Name> {
        Vec::new()
    }

    /// The value a field selector compares, `None` when the field is not supported.
    fn field(&self, object: &Value, path: &str) -> Option<String>;

    /// What to say about a field selector that is not supported.
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

    /// Seconds that a deleted object stays so that it can end well; `asked` is the client's wish.
    fn grace_seconds(&self, _object: &Value, _asked: Option<i64>) -> Option<i64> {
        None
    }

    /// Deleting without a propagation policy leaves the dependents alone (jobs, replication controllers).
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
    /// namespace). Asked before the deletion, it tells kinds that end in steps of their own.
    fn holds_back_delete(&self, _object: &Value) -> bool {
        false
    }

    /// How long an object is kept after its last write; `None` is for ever (all but events).
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

    /// The real server has columns of its own for this kind; where it has none, it writes `null`
    /// for no rows.
    fn has_own_columns(&self) -> bool {
        true
    }

    /// One row, a cell per column; `now` is for ages.
    fn cells(&self, object: &Value, now: jiff::Timestamp) -> Vec<Value>;

    /// What a row says besides its cells: finished pods carry `Completed`.
    fn row_conditions(&self, _object: &Value) -> Vec<Value> {
        Vec::new()
    }
}

/// A column of a `Table`.
#[derive(Debug, Clone, PartialEq)]
pub struct Column {
    pub name: Name,
    /// `string`, `integer`, `boolean`, `date`, ...
    pub kind: Name,
    pub format: Name,
    pub description: Name,
    /// 0 is always shown, 1 with `-o wide`.
    pub priority: i32,
}
