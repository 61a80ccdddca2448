//! The plugin framework: everything that the author of a plugin needs.
//!
//! A plugin is one file in `plugins/` and its line in [`crate::scheduling::plugins::ALL`]. For each pod, [`Plugin::prepare`]
//! reads the pod once and *declares* what it needs to know about nodes. Except in opaque checks it sees no node, counter or
//! other pod; it declares small checks that see only what was declared. So the same plugin works with an evaluator that
//! visits every node and with one that caches results: both know every value that a check reads.
//!
//! | form | declared by | for |
//! |---|---|---|
//! | gate | [`Plan::gate`] | a [`Fact`] of the node's object that must be 0: selectors, taints, flags |
//! | row | [`Plan::filter_rows`], [`Plan::score_rows`] | numbers of the node's own accounts ([`Plan::column`]) |
//! | place | [`Plan::filter_places`], [`Plan::score_places`], [`Plan::tier`] | facts ([`Plan::fact`]) and counts of pods ([`Plan::count`]), scores that are normalised |
//! | zone | [`Plan::filter_zones`], [`Plan::score_zones`] | the NUMA zones of the node and the pods that have them |
//! | opaque | [`Plan::filter_nodes`], [`Plan::score_nodes`] | last resort: sees a whole node, so its results cannot be cached |
//!
//! A *place* is one node, or a group of nodes that are equal in everything declared; a check cannot distinguish them.
//! [`Plan::only`] limits the candidates to some names; [`Plan::reject`] ends the cycle at
//! PreFilter, [`Plan::fail_scoring`] ends it at PreScore.
//! **A plugin that declares nothing skips**: it neither filters nor adds to any total. [`Plan::filter_only_with`] and
//! [`Plan::score_only_with`] make it skip when the cluster has no matching pods.
//!
//! Which of a plugin's declarations are used depends on the extension points it is enabled at: gates and filters
//! need Filter, `only` and `reject` need PreFilter, `fail_scoring` needs PreScore, scores and tiers need Score.
//!
//! Rules for plugins:
//! - [`NodeRule`] and [`PodRule`] depend on their own fields and their argument only. Their fields are their identity:
//!   two equal rules are evaluated once.
//! - `normalize` uses only which values occur, never how often. Values that depend on the number of nodes come from `survey`.
//! - Row scores are within 0..=100 and are not normalised. Register a place for a score that is.
//! - Counts of pods need no Reserve: an assumed pod is in all counts and rows.

pub mod arithmetic;
mod config_rules;
pub mod facts;
mod opaque;
mod path;
mod place;
mod plan;
mod registry;
mod row;
mod rule;
mod verdict;
mod zone;

pub use crate::cluster::event::{Actions, Change, Changed, Event, EventPattern, Kind};
pub use crate::cluster::kinds::models::*;
pub use crate::cluster::{
    Catalog, ImageState, NodeZones, Part, Storage, TermRole, ZoneHolder, ZoneRow,
};
pub use config_rules::{AddedArg, ArgOverride, Companion, ConfigRules, ConfigVersion, Successor};
pub use opaque::{NodeFilter, NodeScore, NodeView};
pub use path::{Permit, PostFilter, Preparation, Step};
pub use place::{Feasible, Place, PlaceFilter, PlaceScore, PlaceTier, Places, Tally};
pub use plan::{Check, CountId, FactId, Gate, Plan, PluginPlan, Score};
pub use registry::{ArgsError, Configure, ConfigureError, Entry, NoArgs, Point, Points};
pub use row::{BLOCK, Block, ColumnId, RequestedAmount, Row, RowFilter, RowScore};
pub use rule::{Carriers, Count, Fact, NodeRule, PodRule, PodSet, Within};
pub use verdict::{Reason, Rejection, Status, Verdict, error_list};
pub use zone::{ZoneFilter, ZoneScore};

pub(crate) use crate::cluster::{ZoneAmounts, positions};
pub(crate) use place::ErasedPlaceTier;
pub(crate) use plan::Need;
pub(crate) use rule::bit_of;

use crate::model::{NodeSpec, Pod, Resource, Timestamp, ZoneSet};

/// A configured scheduling plugin. Every method but `prepare` has a default that does nothing.
pub trait Plugin: Send + Sync {
    /// Declares what the plugin needs to know about nodes for this pod. See the module's documentation.
    fn prepare(&self, pod: &Pod, catalog: &Catalog, plan: &mut Plan);

    /// The resources that the arguments score by. The scheduler warns about those that no node has.
    fn scored_resources(&self) -> Vec<Resource> {
        Vec::new()
    }

    /// Events that may help a pod that this plugin rejected; by default all events.
    fn events(&self) -> Vec<EventPattern> {
        EventPattern::anything()
    }

    /// The queueing hint: whether this event, one of [`Plugin::events`], may let the pod pass this plugin now.
    fn helps(&self, _pod: &Pod, _event: &Event, _catalog: &Catalog) -> bool {
        true
    }

    /// Whether other pods that end or shrink can help a pod that is [`Status::Unresolvable`] on every node, of which this plugin
    /// rejected some. Then [`Plugin::helps`] is asked about them.
    fn other_pods_help_unresolvable(&self) -> bool {
        true
    }

    /// PreEnqueue: an error keeps the pod out of the queue, gated by this plugin.
    fn pre_enqueue(&self, _pod: &Pod, _catalog: &Catalog) -> Result<(), Rejection> {
        Ok(())
    }

    /// QueueSort: whether `a` comes before `b`; each has the time at which it was queued.
    fn goes_before(&self, _a: (&Pod, Timestamp), _b: (&Pod, Timestamp)) -> bool {
        false
    }

    /// Reserve: the NUMA zones that the pod gets on the node, `None` if the plugin gives it none. The pod has them from then
    /// on, for as long as it is on the node.
    fn zones(&self, _pod: &Pod, _node: Option<&NodeZones>) -> Option<ZoneSet> {
        None
    }

    /// Reserve: reserves what only this plugin tracks (volumes, devices) for the pod on the node.
    fn reserve(
        &self,
        _pod: &Pod,
        _node: &NodeSpec,
        _catalog: &mut Catalog,
    ) -> Result<(), Rejection> {
        Ok(())
    }

    /// Unreserve: releases the reservation. Runs for every Reserve plugin in reverse order, even if its `reserve` did not run.
    fn unreserve(&self, _pod: &Pod, _node: &NodeSpec, _catalog: &mut Catalog) {}

    /// PostFilter: no node is feasible. `asked` is false if PreFilter ended before this plugin ran.
    fn post_filter(&self, _pod: &Pod, _catalog: &Catalog, _asked: bool) -> PostFilter {
        PostFilter::Nothing("".into())
    }

    /// Permit: whether a pod with a reserved node may be bound.
    fn permit(&self, _pod: &Pod, _node: &NodeSpec, _: &Catalog) -> Result<Permit, Rejection> {
        Ok(Permit::Go)
    }

    /// PreBind: what must be done before binding; `None` if nothing.
    fn pre_bind(
        &self,
        _pod: &Pod,
        _node: &NodeSpec,
        _catalog: &Catalog,
    ) -> Result<Option<Preparation>, Rejection> {
        Ok(None)
    }

    /// PreBind: annotations that the pod gets in the same request that binds it. An extender that binds gets none.
    fn annotations(
        &self,
        _pod: &Pod,
        _node: &NodeSpec,
        _catalog: &Catalog,
    ) -> Vec<(&'static str, String)> {
        Vec::new()
    }

    /// Bind: whether this plugin binds the pod (through pods/binding).
    fn binds(&self, _pod: &Pod) -> bool {
        true
    }

    /// PostBind: the pod is bound.
    fn post_bind(&self, _pod: &Pod, _node: &NodeSpec, _catalog: &mut Catalog) {}
}
