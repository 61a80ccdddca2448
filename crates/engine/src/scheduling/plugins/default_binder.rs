//! Binds a pod to its node through the API. The engine only selects the plugin; the driver sends the binding.

use crate::model::Pod;
use crate::scheduling::framework::{
    ArgsError, Catalog, Configure, EventPattern, NoArgs, Plan, Plugin, Point, Points,
};

pub struct DefaultBinder;

impl Configure for DefaultBinder {
    const NAME: &'static str = "DefaultBinder";
    const POINTS: Points = Points::of(&[Point::Bind]);
    type Args = NoArgs;

    fn new(_: NoArgs) -> Result<Self, Vec<ArgsError>> {
        Ok(Self)
    }
}

impl Plugin for DefaultBinder {
    fn prepare(&self, _: &Pod, _: &Catalog, _: &mut Plan) {}

    fn events(&self) -> Vec<EventPattern> {
        Vec::new()
    }
}
