//! Preemption for co-location profiles: the same as DefaultPreemption under its own name; see [`PostFilter::Preempt`].
//!
//! In every profile a reclaimed pod can evict only reclaimed pods.

use super::default_preemption::{DefaultPreemption, DefaultPreemptionArgs};
use crate::model::Pod;
use crate::scheduling::framework::{
    ArgsError, Catalog, ConfigRules, Configure, Event, EventPattern, Plan, Plugin, Points,
    PostFilter, Rejection,
};

pub struct QoSAwarePreemption(DefaultPreemption);

impl Configure for QoSAwarePreemption {
    const NAME: &'static str = "QoSAwarePreemption";
    const POINTS: Points = DefaultPreemption::POINTS;
    const RULES: ConfigRules = DefaultPreemption::RULES;
    type Args = DefaultPreemptionArgs;

    fn new(args: DefaultPreemptionArgs) -> Result<Self, Vec<ArgsError>> {
        DefaultPreemption::new(args).map(Self)
    }
}

impl Plugin for QoSAwarePreemption {
    fn prepare(&self, pod: &Pod, catalog: &Catalog, plan: &mut Plan) {
        self.0.prepare(pod, catalog, plan);
    }

    fn pre_enqueue(&self, pod: &Pod, catalog: &Catalog) -> Result<(), Rejection> {
        self.0.pre_enqueue(pod, catalog)
    }

    fn post_filter(&self, pod: &Pod, catalog: &Catalog, asked: bool) -> PostFilter {
        self.0.post_filter(pod, catalog, asked)
    }

    fn events(&self) -> Vec<EventPattern> {
        self.0.events()
    }

    fn helps(&self, pod: &Pod, event: &Event, catalog: &Catalog) -> bool {
        self.0.helps(pod, event, catalog)
    }
}
