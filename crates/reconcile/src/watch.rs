//! Reflectors: each lists and watches the objects of one kind for a component of the process.
//!
//! A component gives the list of its [`Resource`]s, and a [`Handler`] for each. A reflector has the server stream all
//! objects (or lists them in pages if the server is too old for that), then watches. It resumes where it stopped when the
//! stream ends, and lists again when the server has compacted that resource version. The handler parses every object at
//! once. A reflector keeps only the name, uid and version of each object, to find those that were deleted meanwhile.
//! Nothing here knows what the objects are for.

mod frames;
mod late;
mod pages;
mod progress;
mod reflector;
mod store;

use std::fmt::Display;

use bytes::Bytes;
use engine::cluster::kinds::Key;
use engine::model::Name;

pub use progress::failing_for;
pub use progress::{KindProgress, Progress};
pub use reflector::reflect;

/// A kind, as a component watches it.
#[derive(Debug)]
pub struct Resource {
    /// Where the API lists its objects.
    pub path: &'static str,
    /// Percent-encoded; empty for all objects.
    pub field_selector: &'static str,
    /// Percent-encoded; empty for all objects.
    pub label_selector: &'static str,
    /// Whether to ask for protobuf.
    pub protobuf: bool,
    /// Whether the component runs without the kind if it has no permission to read it, or if the first list takes too long.
    pub optional: bool,
}

impl Resource {
    pub const fn at(path: &'static str) -> Self {
        Self {
            path,
            field_selector: "",
            label_selector: "",
            protobuf: false,
            optional: false,
        }
    }

    /// The selectors as the rest of a query.
    fn selectors(&self) -> String {
        let selectors = [
            ("fieldSelector", self.field_selector),
            ("labelSelector", self.label_selector),
        ];
        let set = selectors.iter().filter(|(_, value)| !value.is_empty());
        set.map(|(name, value)| format!("&{name}={value}"))
            .collect()
    }

    /// The plural, for messages: `csinodes`.
    pub fn name(&self) -> &'static str {
        self.path.rsplit('/').next().unwrap_or_default()
    }
}

/// An object as it was received.
#[derive(Debug, Clone, PartialEq)]
pub enum RawObject {
    Json(Bytes),
    /// The message without its envelope.
    Protobuf(Bytes),
}

/// An object that was parsed.
pub struct Observed<T, P> {
    pub key: Key,
    pub uid: Name,
    pub resource_version: String,
    /// `None` if the object has ended: for the component it is deleted.
    pub object: Option<T>,
    /// Values of the object that were left out.
    pub problem: Option<P>,
}

/// A difference from what a component has seen before.
pub enum ObjectChange<T> {
    Applied(T),
    Deleted { key: Key, uid: Name },
}

/// What a component does with the objects of one kind.
pub trait Handler: Send + Sync + 'static {
    type Object: Send;
    /// Why an object, or a part of it, cannot be used.
    type Problem: Display + Send;

    /// Parses an object. What is known of an object that cannot be parsed stays as it was.
    fn parse(
        &self,
        raw: &RawObject,
    ) -> Result<Observed<Self::Object, Self::Problem>, Self::Problem>;

    /// Takes changes in their order. The reflector waits until this returns.
    fn deliver(&self, changes: Vec<ObjectChange<Self::Object>>) -> impl Future<Output = ()> + Send;

    /// All objects were delivered once, or the component goes on without them. Called once.
    fn synced(&self, kind: &'static str) -> impl Future<Output = ()> + Send;

    /// Called once for each object and text.
    fn report(&self, problem: Self::Problem);
}
