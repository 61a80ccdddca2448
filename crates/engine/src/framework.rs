//! All that the author of a plugin reads.
//!
//! A plugin is one file in `plugins/` and its line in [`crate::plugins::ALL`]. For each pod, [`Plugin::prepare`]
//! studies the pod once and *declares* what is then asked about nodes. It never sees a node, a counter or another
//! pod; it hands over small checks that see only what was declared. So one text serves an evaluator that looks at
//! every node and one that remembers: neither can be surprised by a value it did not know was read.
//!
//! | form | declared by | for |
//! |---|---|---|
//! | gate | [`Plan::gate`] | a [`Fact`] of the node's object that must be 0: selectors, taints, flags |
//! | row | [`Plan::filter_rows`], [`Plan::score_rows`] | numbers of the node's own accounts ([`Plan::column`]) |
//! | place | [`Plan::filter_places`], [`Plan::score_places`], [`Plan::tier`] | facts ([`Plan::fact`]) and counts of pods ([`Plan::count`]), scores that are normalised |
//! | opaque | [`Plan::filter_nodes`] | last resort: sees a whole node, so nothing about it can be remembered |
//!
//! A *place* is one node, or a group of nodes that are equal in everything declared; a check cannot tell which.
//! Besides, [`Plan::only`] narrows the candidates to some names, [`Plan::reject`] and [`Plan::fail`] end the cycle.
//! **A plugin that declares nothing skips**: it neither filters nor adds to any total. [`Plan::filter_only_with`] and
//! [`Plan::score_only_with`] make it skip when there are no pods that it is about.
//!
//! Which of a plugin's declarations are used depends on the extension points it is enabled at: gates and filters
//! need Filter, `only`, `reject` and `fail` need PreFilter (or PreScore, if said so), scores need Score.
//!
//! What must hold:
//! - [`NodeRule`] and [`PodRule`] depend on their own fields and their argument only. Their fields are their identity:
//!   two equal rules are evaluated once.
//! - `normalize` uses only which values occur, never how often. What depends on numbers of nodes comes by `survey`.
//! - Row scores are within 0..=100 and are not normalised. Register a place for a score that is.
//! - State of the form "how many pods where" needs no Reserve: an assumed pod is in all counts and rows.

pub mod arithmetic;
mod event;
pub mod facts;
mod opaque;
mod path;
mod place;
mod plan;
mod registry;
mod row;
mod rule;
mod verdict;

pub use crate::cluster::{Catalog, ImageState, Part, Storage};
pub use event::{Actions, Change, Changed, Event, EventPattern, Watched};
pub use opaque::{NodeFilter, NodeScore, NodeView};
pub use path::{Permit, PostFilter, Preparation, Step};
pub use place::{Feasible, Place, PlaceFilter, PlaceScore, PlaceTier, Places, Tally};
pub use plan::{Check, CountId, FactId, Gate, Plan, PluginPlan, Score};
pub use registry::{ArgsError, Configure, ConfigureError, Entry, NoArgs, Point, Points};
pub use row::{BLOCK, Block, ColumnId, Row, RowFilter, RowScore};
pub use rule::{Count, Fact, NodeRule, PodRule, PodSet, Within};
pub use verdict::{Reason, Rejection, Status, Verdict, error_list};

pub(crate) use plan::Need;
pub(crate) use rule::NodeFacts;

use crate::model::{NodeSpec, Pod, Resource, Timestamp};

/// A scheduling plugin, configured. Every method but `prepare` has a default that does nothing.
pub trait Plugin: Send + Sync {
    /// Declares what this pod needs to know about nodes. See the module's documentation.
    fn prepare(&self, pod: &Pod, catalog: &Catalog, plan: &mut Plan);

    /// Resources that the arguments name to score by, so that people can be told of one that no node has.
    fn scored_resources(&self) -> Vec<Resource> {
        Vec::new()
    }

    /// Events that may help a pod this plugin rejected. Without it: everything that can happen.
    fn events(&self) -> Vec<EventPattern> {
        EventPattern::anything()
    }

    /// The queueing hint: whether this event, one of [`Plugin::events`], may let the pod pass this plugin now.
    fn helps(&self, _pod: &Pod, _event: &Event, _catalog: &Catalog) -> bool {
        true
    }

    /// PreEnqueue: an error keeps the pod out of the queue, gated by this plugin.
    fn pre_enqueue(&self, _pod: &Pod, _catalog: &Catalog) -> Result<(), Rejection> {
        Ok(())
    }

    /// QueueSort: whether `a`, queued at its time, is to be tried before `b`.
    fn goes_before(&self, _a: (&Pod, Timestamp), _b: (&Pod, Timestamp)) -> bool {
        false
    }

    /// Reserve: takes what only this plugin knows of (volumes, devices) for the pod on the node.
    fn reserve(
        &self,
        _pod: &Pod,
        _node: &NodeSpec,
        _catalog: &mut Catalog,
    ) -> Result<(), Rejection> {
        Ok(())
    }

    /// Gives it back. Called for every Reserve plugin in reverse order, also if its `reserve` never ran.
    fn unreserve(&self, _pod: &Pod, _node: &NodeSpec, _catalog: &mut Catalog) {}

    /// PostFilter: no node would do. `asked` is false if PreFilter ended before it was this plugin's turn.
    fn post_filter(&self, _pod: &Pod, _catalog: &Catalog, _asked: bool) -> PostFilter {
        PostFilter::Nothing("".into())
    }

    /// Permit: the pod has its room; may it go on?
    fn permit(&self, _pod: &Pod, _node: &NodeSpec, _: &Catalog) -> Result<Permit, Rejection> {
        Ok(Permit::Go)
    }

    /// PreBind: what must be done in the world first; `None` if nothing.
    fn pre_bind(
        &self,
        _pod: &Pod,
        _node: &NodeSpec,
        _catalog: &Catalog,
    ) -> Result<Option<Preparation>, Rejection> {
        Ok(None)
    }

    /// Bind: whether this plugin's kind of binding (the pods/binding of Kubernetes) is meant for the pod.
    fn binds(&self, _pod: &Pod) -> bool {
        true
    }

    /// PostBind: the pod is bound. Nothing can be said against it any more.
    fn post_bind(&self, _pod: &Pod, _node: &NodeSpec, _catalog: &mut Catalog) {}
}
