//! Every metric changes when its event happens.

use std::time::Duration;

use apiserver::faults::{Fault, Matching};
use control_plane::scheduler::Options;
use control_plane::serve::{Port, Serve};
use engine::cluster::Catalog;
use engine::model::{NodeSpec, Pod};
use engine::scheduling::framework::{
    ArgsError, Configure, Entry, NoArgs, Permit, Plan, Plugin, Point, Points, Rejection,
};
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::support::{Fixture, SCHEDULER, eventually, pod};

/// Holds pods named `held` for a moment and then has nothing more to say, which is a no.
struct Holds;

impl Plugin for Holds {
    fn prepare(&self, _: &Pod, _: &Catalog, _: &mut Plan<'_>) {}

    fn permit(&self, pod: &Pod, _node: &NodeSpec, _catalog: &Catalog) -> Result<Permit, Rejection> {
        match &*pod.name {
            "held" => Ok(Permit::Wait(Duration::from_millis(100))),
            _ => Ok(Permit::Go),
        }
    }
}

impl Configure for Holds {
    const NAME: &'static str = "Holds";
    const POINTS: Points = Points::of(&[Point::Permit]);
    type Args = NoArgs;

    fn new(_: NoArgs) -> Result<Self, Vec<ArgsError>> {
        Ok(Self)
    }
}

pub(crate) fn options() -> Options {
    let text = format!(
        "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\nprofiles:\n- schedulerName: {SCHEDULER}\n  plugins: {{permit: {{enabled: [{{name: Holds}}]}}}}\n"
    );
    let (configuration, _) = api::config::load(&text).unwrap();
    let plugins: Vec<Entry> = engine::scheduling::plugins::ALL
        .iter()
        .copied()
        .chain([Entry::of::<Holds>()])
        .collect();
    let mut options = Options::new(&configuration, &plugins, "host").unwrap().0;
    options.serve = Some(Serve {
        port: Port::Exactly(0),
        ..Serve::default()
    });
    options
}

pub(crate) async fn metrics(fixture: &Fixture) -> String {
    let mut stream = tokio::net::TcpStream::connect(fixture.server())
        .await
        .unwrap();
    let request = "GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    answer
}

/// The value of the line that starts so, if it is there.
pub(crate) fn value(text: &str, series: &str) -> Option<f64> {
    let line = text.lines().find(|line| {
        line.strip_prefix(series)
            .is_some_and(|rest| rest.starts_with(' '))
    })?;
    line.rsplit(' ').next()?.parse().ok()
}

#[tokio::test(flavor = "multi_thread")]
async fn each_moves() {
    let mut fixture = Fixture::new().await;
    fixture.add_node("node", "4", 110).await;
    // The first bind is refused once, so that one attempt ends in an error.
    let bind = Matching::new("create", "pods/binding");
    fixture.faults.next(1, bind, Fault::Conflict);
    fixture.schedule_with_options(options());
    fixture.add_pod("victim", "3").await;
    fixture.all_placed(1).await;
    fixture.add_urgent_pod("urgent", "3").await;
    eventually("the victim goes", || async {
        let victim = fixture.pods().get_opt("victim").await.unwrap();
        match victim {
            Some(victim) if victim.metadata.deletion_timestamp.is_none() => Err("it stays"),
            _ => Ok(()),
        }
    })
    .await;
    fixture.kill("victim").await;
    eventually("the urgent pod is placed", || async {
        fixture.placed().await.remove("urgent").ok_or("it waits")
    })
    .await;
    fixture.add_pod("giant", "100").await;
    let mut gated = pod("gated", "1");
    gated["spec"]["schedulingGates"] = json!([{"name": "example.com/gate"}]);
    fixture.create_pod(gated).await;
    fixture.add_pod("held", "1").await;

    // Nodes are compared only if several would do.
    for name in ["second", "third"] {
        fixture.add_node(name, "4", 110).await;
    }
    fixture.add_pod("scored", "1").await;

    let profile = r#"profile="tidepool""#;
    let at_least = |series: String, least: f64| (series, least);
    let point = |point: &str, status: &str| {
        let name = "scheduler_framework_extension_point_duration_seconds_count";
        format!(r#"{name}{{extension_point="{point}",status="{status}",{profile}}}"#)
    };
    let evaluated = |plugin: &str, point: &str| {
        let name = "scheduler_plugin_evaluation_total";
        format!(r#"{name}{{plugin="{plugin}",extension_point="{point}",{profile}}}"#)
    };
    let wanted = [
        at_least(format!(r#"scheduler_schedule_attempts_total{{result="scheduled",{profile}}}"#), 3.0),
        at_least(format!(r#"scheduler_schedule_attempts_total{{result="unschedulable",{profile}}}"#), 2.0),
        at_least(format!(r#"scheduler_schedule_attempts_total{{result="error",{profile}}}"#), 1.0),
        at_least(format!(r#"scheduler_scheduling_attempt_duration_seconds_count{{result="scheduled",{profile}}}"#), 3.0),
        at_least("scheduler_preemption_victims_count".into(), 1.0),
        at_least("scheduler_preemption_attempts_total".into(), 2.0),
        at_least(r#"scheduler_pending_pods{queue="gated"}"#.into(), 1.0),
        at_least(r#"scheduler_pending_pods{queue="unschedulable"}"#.into(), 1.0),
        at_least(r#"scheduler_pod_scheduling_sli_duration_seconds_count{attempts="2"}"#.into(), 1.0),
        at_least("scheduler_pod_scheduling_attempts_count".into(), 3.0),
        at_least(point("PreEnqueue", "Success"), 5.0),
        at_least(point("PreFilter", "Success"), 4.0),
        at_least(point("Filter", "Success"), 4.0),
        at_least(point("PostFilter", "Success"), 1.0),
        at_least(point("PostFilter", "Unschedulable"), 1.0),
        at_least(point("PreScore", "Success"), 1.0),
        at_least(point("Score", "Success"), 1.0),
        at_least(point("Reserve", "Success"), 3.0),
        at_least(point("Unreserve", "Success"), 2.0),
        at_least(point("Permit", "Success"), 3.0),
        at_least(point("Permit", "Wait"), 1.0),
        at_least(point("PreBindPreFlight", "Skip"), 3.0),
        at_least(point("PreBind", "Success"), 3.0),
        at_least(point("Bind", "Success"), 3.0),
        at_least(point("Bind", "Error"), 1.0),
        at_least(point("PostBind", "Success"), 3.0),
        at_least(evaluated("NodeResourcesFit", "PreFilter"), 4.0),
        at_least(evaluated("NodeResourcesFit", "Filter"), 4.0),
        at_least(evaluated("NodeName", "Filter"), 4.0),
        at_least(evaluated("TaintToleration", "PreScore"), 1.0),
        at_least(evaluated("ImageLocality", "Score"), 2.0),
        at_least(r#"scheduler_queue_incoming_pods_total{queue="active",event="UnschedulablePodAdd"}"#.into(), 4.0),
        at_least(r#"scheduler_queue_incoming_pods_total{queue="unschedulable",event="ScheduleAttemptFailure"}"#.into(), 1.0),
        at_least(r#"scheduler_queue_incoming_pods_total{queue="unschedulable",event="UnschedulablePodAdd"}"#.into(), 1.0),
        at_least(r#"scheduler_permit_wait_duration_seconds_count{result="Unschedulable"}"#.into(), 1.0),
        at_least(format!(r#"scheduler_unschedulable_pods{{plugin="NodeResourcesFit",{profile}}}"#), 1.0),
        at_least(format!(r#"scheduler_unschedulable_pods{{plugin="SchedulingGates",{profile}}}"#), 1.0),
        at_least(r#"tidepool_binds_total{result="bound"}"#.into(), 3.0),
        at_least(r#"tidepool_binds_total{result="refused"}"#.into(), 1.0),
        at_least(r#"tidepool_events_total{result="written"}"#.into(), 3.0),
        at_least(r#"tidepool_role{role="alone"}"#.into(), 1.0),
    ];
    let text = eventually("every metric has moved", || async {
        let text = metrics(&fixture).await;
        let missing: Vec<String> = wanted
            .iter()
            .filter(|(series, least)| value(&text, series).is_none_or(|found| found < *least))
            .map(|(series, _)| format!("{series}: {:?}", value(&text, series)))
            .collect();
        if missing.is_empty() {
            Ok(text)
        } else {
            Err(missing)
        }
    })
    .await;
    // A plugin that has nothing to say about a pod is not counted, and a search without result is no failure.
    for (plugin, point) in [
        ("NodeAffinity", "PreFilter"),
        ("NodeAffinity", "Filter"),
        ("PodTopologySpread", "Filter"),
        ("InterPodAffinity", "Score"),
        ("VolumeBinding", "PreScore"),
    ] {
        assert_eq!(
            value(&text, &evaluated(plugin, point)),
            Some(0.0),
            "{plugin}"
        );
    }
    assert_eq!(value(&text, &point("Filter", "Unschedulable")), None);
    are_kube_schedulers(&text);
    assert!(value(&text, r#"tidepool_watch_silence_seconds{kind="pods"}"#).is_some());

    // A pod that goes is not waited for.
    fixture.kill("giant").await;
    fixture.kill("held").await;
    eventually("nobody is rejected any more", || async {
        let text = metrics(&fixture).await;
        let series =
            format!(r#"scheduler_unschedulable_pods{{plugin="NodeResourcesFit",{profile}}}"#);
        match value(&text, &series) {
            Some(0.0) => Ok(()),
            found => Err(found),
        }
    })
    .await;
    fixture.stop().await;
}

/// Returns once so much work of a kind is under way.
pub(crate) async fn under_way(fixture: &Fixture, operation: &str, count: f64) {
    let series = format!(r#"scheduler_goroutines{{operation="{operation}"}}"#);
    eventually(&format!("{series} is {count}"), || async {
        match value(&metrics(fixture).await, &series) {
            Some(found) if found == count => Ok(()),
            found => Err(found),
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn work_is_counted_while_it_is_under_way() {
    let mut fixture = Fixture::new().await;
    fixture.add_node("node", "4", 110).await;
    let slow = || Fault::Delay(Duration::from_secs(2));
    let bind = Matching::new("create", "pods/binding");
    fixture.faults.next(1, bind, slow());
    fixture.schedule_with_options(options());
    fixture.add_pod("victim", "3").await;
    under_way(&fixture, "binding", 1.0).await;
    fixture.all_placed(1).await;
    under_way(&fixture, "binding", 0.0).await;
    let delete = Matching::new("delete", "pods");
    fixture.faults.next(1, delete, slow());
    fixture.add_urgent_pod("urgent", "3").await;
    under_way(&fixture, "DefaultPreemption", 1.0).await;
    under_way(&fixture, "DefaultPreemption", 0.0).await;
    fixture.stop().await;
}

/// Labels in the order of the alphabet, and the buckets: the first, the factor, how many.
type Shape = (
    &'static str,
    &'static [&'static str],
    Option<(f64, f64, usize)>,
);

/// kube-scheduler's stable and beta metrics (v1.36).
const KUBE_SCHEDULERS: [Shape; 13] = [
    ("schedule_attempts_total", &["profile", "result"], None),
    (
        "scheduling_attempt_duration_seconds",
        &["profile", "result"],
        Some((0.001, 2.0, 15)),
    ),
    ("preemption_victims", &[], Some((1.0, 2.0, 7))),
    ("preemption_attempts_total", &[], None),
    ("pending_pods", &["queue"], None),
    ("goroutines", &["operation"], None),
    (
        "pod_scheduling_sli_duration_seconds",
        &["attempts"],
        Some((0.01, 2.0, 20)),
    ),
    ("pod_scheduling_attempts", &[], Some((1.0, 2.0, 5))),
    (
        "framework_extension_point_duration_seconds",
        &["extension_point", "profile", "status"],
        Some((0.0001, 2.0, 12)),
    ),
    (
        "plugin_evaluation_total",
        &["extension_point", "plugin", "profile"],
        None,
    ),
    ("queue_incoming_pods_total", &["event", "queue"], None),
    (
        "permit_wait_duration_seconds",
        &["result"],
        Some((0.001, 2.0, 15)),
    ),
    ("unschedulable_pods", &["plugin", "profile"], None),
];

fn are_kube_schedulers(text: &str) {
    for (name, labels, buckets) in KUBE_SCHEDULERS {
        let series = match buckets {
            Some(_) => format!("scheduler_{name}_bucket"),
            None => format!("scheduler_{name}"),
        };
        let of_it = text.lines().filter_map(|line| {
            let rest = line.strip_prefix(&series)?;
            let rest = rest.split(' ').next()?;
            rest.is_empty().then_some("").or_else(|| {
                rest.strip_prefix('{')
                    .and_then(|rest| rest.strip_suffix('}'))
            })
        });
        // Values have no commas and no equals signs.
        let of_it: Vec<Vec<(&str, &str)>> = of_it
            .map(|inside| {
                inside
                    .split(',')
                    .filter_map(|it| it.split_once('='))
                    .collect()
            })
            .collect();
        let first = of_it
            .first()
            .unwrap_or_else(|| panic!("no {series} in\n{text}"));
        let mut found: Vec<&str> = first.iter().map(|(label, _)| *label).collect();
        found.retain(|label| *label != "le");
        found.sort_unstable();
        assert_eq!(found, labels, "{name}");
        let Some((start, factor, count)) = buckets else {
            continue;
        };
        let mut bounds: Vec<f64> = of_it
            .iter()
            .flatten()
            .filter(|(label, _)| *label == "le")
            .filter_map(|(_, bound)| bound.trim_matches('"').parse().ok())
            .filter(|bound: &f64| bound.is_finite())
            .collect();
        bounds.sort_by(f64::total_cmp);
        bounds.dedup();
        let wanted = std::iter::successors(Some(start), |bound| Some(bound * factor)).take(count);
        let wanted: Vec<f64> = wanted.collect();
        assert_eq!(bounds, wanted, "{name}");
    }
}
