//! Every metric moves when what it counts happens.

use std::time::Duration;

use apiserver::faults::{Fault, Matching};
use control_plane::scheduler::Options;
use control_plane::serve::{Port, Serve};
use engine::cluster::Catalog;
use engine::framework::{
    ArgsError, Configure, Entry, NoArgs, Permit, Plan, Plugin, Point, Points, Rejection,
};
use engine::model::{NodeSpec, Pod};
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

fn options() -> Options {
    let text = format!(
        "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\nprofiles:\n- schedulerName: {SCHEDULER}\n  plugins: {{permit: {{enabled: [{{name: Holds}}]}}}}\n"
    );
    let (configuration, _) = api::config::load(&text).unwrap();
    let plugins: Vec<Entry> = engine::plugins::ALL
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

async fn metrics(fixture: &Fixture) -> String {
    let mut stream = tokio::net::TcpStream::connect(fixture.server())
        .await
        .unwrap();
    let request = "GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    answer
}

/// The value of the line that starts so, if it is there.
fn value(text: &str, series: &str) -> Option<f64> {
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

    let profile = r#"profile="tidepool""#;
    let at_least = |series: String, least: f64| (series, least);
    let wanted = [
        at_least(format!(r#"scheduler_schedule_attempts_total{{result="scheduled",{profile}}}"#), 2.0),
        at_least(format!(r#"scheduler_schedule_attempts_total{{result="unschedulable",{profile}}}"#), 2.0),
        at_least(format!(r#"scheduler_schedule_attempts_total{{result="error",{profile}}}"#), 1.0),
        at_least(format!(r#"scheduler_scheduling_attempt_duration_seconds_count{{result="scheduled",{profile}}}"#), 2.0),
        at_least("scheduler_preemption_victims_count".into(), 1.0),
        at_least("scheduler_preemption_attempts_total".into(), 2.0),
        at_least(r#"scheduler_pending_pods{queue="gated"}"#.into(), 1.0),
        at_least(r#"scheduler_pending_pods{queue="unschedulable"}"#.into(), 1.0),
        at_least(r#"scheduler_pod_scheduling_sli_duration_seconds_count{attempts="2"}"#.into(), 1.0),
        at_least("scheduler_pod_scheduling_attempts_count".into(), 2.0),
        at_least(format!(r#"scheduler_framework_extension_point_duration_seconds_count{{extension_point="Filter",status="Success",{profile}}}"#), 2.0),
        at_least(format!(r#"scheduler_framework_extension_point_duration_seconds_count{{extension_point="Filter",status="Unschedulable",{profile}}}"#), 1.0),
        at_least(format!(r#"scheduler_framework_extension_point_duration_seconds_count{{extension_point="Bind",status="Success",{profile}}}"#), 2.0),
        at_least(format!(r#"scheduler_plugin_evaluation_total{{plugin="NodeResourcesFit",extension_point="Filter",{profile}}}"#), 4.0),
        at_least(format!(r#"scheduler_plugin_evaluation_total{{plugin="ImageLocality",extension_point="Score",{profile}}}"#), 2.0),
        at_least(r#"scheduler_queue_incoming_pods_total{queue="active",event="UnschedulablePodAdd"}"#.into(), 4.0),
        at_least(r#"scheduler_queue_incoming_pods_total{queue="unschedulable",event="ScheduleAttemptFailure"}"#.into(), 1.0),
        at_least(r#"scheduler_permit_wait_duration_seconds_count{result="unschedulable"}"#.into(), 1.0),
        at_least(format!(r#"scheduler_unschedulable_pods{{plugin="NodeResourcesFit",{profile}}}"#), 1.0),
        at_least(r#"tidepool_binds_total{result="bound"}"#.into(), 2.0),
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
    // Nothing is being bound now, and the count says so.
    assert_eq!(
        value(&text, r#"scheduler_goroutines{operation="binding"}"#),
        Some(0.0)
    );
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
