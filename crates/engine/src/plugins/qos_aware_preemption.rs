//! Makes room for a pod that fits nowhere by evicting pods of lower priority, without letting reclaimed pods harm
//! others; [`PostFilter::Preempt`] has the rules.
//!
//! That a reclaimed pod evicts reclaimed pods only holds whoever asks for victims; this is the name under which
//! co-location profiles ask.

use super::default_preemption::{DefaultPreemption, DefaultPreemptionArgs};
use crate::framework::{
    ArgsError, Catalog, Configure, Event, EventPattern, Plan, Plugin, Points, PostFilter, Rejection,
};
use crate::model::Pod;

pub struct QoSAwarePreemption(DefaultPreemption);

impl Configure for QoSAwarePreemption {
    const NAME: &'static str = "QoSAwarePreemption";
    const POINTS: Points = DefaultPreemption::POINTS;
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
