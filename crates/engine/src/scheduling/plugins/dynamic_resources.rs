//! Rejects pods with resource claims, because this scheduler does not allocate devices yet. Pods without claims pass.

use serde::{Deserialize, Serialize};

use crate::model::{Pod, parse_duration, write_duration};
use crate::scheduling::framework::{
    ArgsError, Catalog, Configure, EventPattern, Place, PlaceScore, Plan, Plugin, Point, Points,
    PostFilter, Rejection,
};

#[derive(Debug, Clone, Default, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub struct DynamicResourcesArgs {
    /// Timeout of the search for devices on one node: `10s` when not given, `0s` for no limit.
    pub filter_timeout: Option<String>,
    /// Timeout until devices are ready: `600s` when not given, at least `1s`.
    pub binding_timeout: Option<String>,
}

pub struct DynamicResources;

const SECOND: i64 = 1_000_000_000;

impl Configure for DynamicResources {
    const NAME: &'static str = "DynamicResources";
    const POINTS: Points = Points::of(&[
        Point::PreEnqueue,
        Point::PreFilter,
        Point::Filter,
        Point::PostFilter,
        Point::Score,
        Point::Reserve,
        Point::PreBind,
    ]);
    type Args = DynamicResourcesArgs;

    fn complete(args: &mut DynamicResourcesArgs) {
        args.filter_timeout.get_or_insert_with(|| "10s".to_owned());
        args.binding_timeout
            .get_or_insert_with(|| "10m0s".to_owned());
    }

    fn new(args: DynamicResourcesArgs) -> Result<Self, Vec<ArgsError>> {
        let must_be_long = "must be at least 1 second";
        let errors: Vec<ArgsError> = [
            (
                "filterTimeout",
                args.filter_timeout,
                0,
                "must be zero or positive",
            ),
            ("bindingTimeout", args.binding_timeout, SECOND, must_be_long),
        ]
        .into_iter()
        .filter_map(|(field, given, least, must)| check_timeout(field, &given?, least, must))
        .collect();
        if errors.is_empty() {
            Ok(Self)
        } else {
            Err(errors)
        }
    }
}

fn check_timeout(field: &str, given: &str, least: i64, must: &str) -> Option<ArgsError> {
    let text = match parse_duration(given) {
        Ok(span) if span >= least => return None,
        Ok(span) => format!("Invalid value: \"{}\": {must}", write_duration(span)),
        Err(error) => error.to_string(),
    };
    Some(ArgsError::new(field, text))
}

impl Plugin for DynamicResources {
    fn prepare(&self, pod: &Pod, _: &Catalog, plan: &mut Plan) {
        if !pod.resource_claims.is_empty() {
            let claims = pod.resource_claims.join(", ");
            plan.reject(Rejection::unresolvable(format!(
                "this scheduler does not allocate devices, and the pod has resource claims: {claims}"
            )));
        }
        plan.score_places(NoDevices);
    }

    /// Runs before the plugins that may preempt. kube-scheduler reports an error if PreFilter ended before this plugin.
    fn post_filter(&self, _: &Pod, _: &Catalog, asked: bool) -> PostFilter {
        if asked {
            PostFilter::Nothing("no new claims to deallocate".into())
        } else {
            PostFilter::Failed("not found".into())
        }
    }

    /// No event helps, because this scheduler does not allocate devices.
    fn events(&self) -> Vec<EventPattern> {
        Vec::new()
    }
}

/// kube-scheduler counts the plugin among the scorers of every pod, although it scores only pods with claims.
struct NoDevices;

impl PlaceScore for NoDevices {
    fn score(&self, _: Place) -> i64 {
        0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Lab, node, pod};

    #[test]
    fn pods_with_claims_are_refused() {
        let lab = Lab::new(DynamicResources).node(node("n"));
        assert_eq!(lab.filter(&pod("p")), ["ok"]);
        let claims = pod("p").with(|pod| pod.resource_claims = vec!["gpu".into(), "nic".into()]);
        let text = "this scheduler does not allocate devices, and the pod has resource claims";
        assert_eq!(lab.filter(&claims), [format!("UU {text}: gpu, nic")]);
    }

    #[test]
    fn every_pod_is_scored_with_0() {
        let lab = Lab::new(DynamicResources).node(node("a")).node(node("b"));
        assert_eq!(lab.scores(&pod("p")), Some(vec![(0, 0), (0, 0)]));
    }

    #[test]
    fn what_it_adds_to_every_failure() {
        let (pod, catalog) = (pod("p").build(), Catalog::default());
        let said = |asked| DynamicResources.post_filter(&pod, &catalog, asked);
        let nothing = PostFilter::Nothing("no new claims to deallocate".into());
        assert_eq!(said(true), nothing);
        assert_eq!(said(false), PostFilter::Failed("not found".into()));
    }

    #[test]
    fn arguments() {
        for (args, want) in [
            (r#"{}"#, vec![]),
            (
                r#"{"filterTimeout":"0s","bindingTimeout":"1h5m3.5s"}"#,
                vec![],
            ),
            (
                r#"{"filterTimeout":"-1s","bindingTimeout":"1ms"}"#,
                vec![
                    r#"filterTimeout: Invalid value: "-1s": must be zero or positive"#,
                    r#"bindingTimeout: Invalid value: "1ms": must be at least 1 second"#,
                ],
            ),
            (
                r#"{"filterTimeout":"5"}"#,
                vec![r#"filterTimeout: time: missing unit in duration "5""#],
            ),
        ] {
            let errors = DynamicResources::with(serde_json::from_str(args).unwrap()).err();
            let errors: Vec<String> = errors.iter().flatten().map(ToString::to_string).collect();
            assert_eq!(errors, want, "{args}");
        }
    }
}
