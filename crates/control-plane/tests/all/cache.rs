//! The cache dump is correct at any instant, and does not delay scheduling.

use std::collections::BTreeMap;
use std::time::Duration;

use apiserver::faults::{Fault, Matching};
use engine::model::{Quantity, Resource};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{ListParams, PostParams};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpSocket;

use crate::http::{any_port, get, get_json, ready, serving};
use crate::support::{Fixture, SCHEDULER, eventually, object, options};

const MIB: i64 = 1 << 20;
/// Accounted for a container that says nothing about memory, where that must not look like nothing.
const DEFAULT_MEMORY: i64 = 200 * MIB;

/// A resource of a list as the integer by which it is counted.
fn amount(list: &Value, resource: &str) -> i64 {
    let text = list[resource].as_str().unwrap_or("0");
    let quantity = Quantity::parse(text).unwrap();
    Resource::parse(resource).unwrap().integer(quantity)
}

fn nodes(dump: &Value) -> &Vec<Value> {
    dump["nodes"].as_array().unwrap()
}

/// What a list of the API server says pods take: by node their number, cpu in thousandths, memory in bytes, and memory
/// with defaults.
async fn listed(fixture: &Fixture) -> BTreeMap<String, [i64; 4]> {
    let mut sums: BTreeMap<String, [i64; 4]> = BTreeMap::new();
    let list = fixture.nodes().list(&ListParams::default()).await.unwrap();
    for node in list {
        sums.insert(node.metadata.name.unwrap(), [0; 4]);
    }
    let list = fixture.pods().list(&ListParams::default()).await.unwrap();
    for pod in list {
        let spec = pod.spec.unwrap();
        let Some(node) = spec.node_name else { continue };
        let requests = spec.containers[0].resources.clone().unwrap().requests;
        let requests = serde_json::to_value(requests.unwrap()).unwrap();
        let memory = amount(&requests, "memory");
        let counted = if memory == 0 { DEFAULT_MEMORY } else { memory };
        let sum = sums.get_mut(&node).unwrap();
        *sum = [
            sum[0] + 1,
            sum[1] + amount(&requests, "cpu"),
            sum[2] + memory,
            sum[3] + counted,
        ];
    }
    sums
}

/// What the scheduler counts for these pods, in the form of [`listed`].
fn counted(dump: &Value) -> BTreeMap<String, [i64; 4]> {
    let node = |node: &Value| {
        let native = &node["native"];
        let sums = [
            node["pods"].as_i64().unwrap(),
            amount(&native["requested"], "cpu"),
            amount(&native["requested"], "memory"),
            amount(&native["nonZeroRequested"], "memory"),
        ];
        assert_eq!(sums[0], amount(&native["requested"], "pods"));
        (node["name"].as_str().unwrap().to_owned(), sums)
    };
    nodes(dump).iter().map(node).collect()
}

fn small_pod(index: usize) -> Value {
    let mut pod = crate::support::pod(&format!("pod-{index}"), ["100m", "0.2"][index % 2]);
    if index.is_multiple_of(3) {
        pod["spec"]["containers"][0]["resources"]["requests"]["memory"] = "64Mi".into();
    }
    pod
}

#[tokio::test(flavor = "multi_thread")]
async fn after_a_drain_with_faults_it_equals_a_fresh_list() {
    const PODS: usize = 150;
    let mut fixture = Fixture::new().await;
    for node in 0..10 {
        fixture.add_node(&format!("node-{node}"), "4", 110).await;
    }
    for (every, matching, fault) in [
        (9, Matching::new("", ""), Fault::InternalError),
        (7, Matching::new("create", ""), Fault::LostAnswer),
        (11, Matching::new("create", ""), Fault::LostRequest),
        (
            2,
            Matching::new("watch", ""),
            Fault::TruncateWatch { after_events: 11 },
        ),
    ] {
        fixture.faults.every(every, matching, fault);
    }
    let mut options = options();
    options.serve = Some(any_port());
    fixture.schedule_with_options(options);
    for index in 0..PODS {
        fixture.create_pod(small_pod(index)).await;
    }
    fixture.all_placed(PODS).await;
    // Some end while watches are broken.
    for index in (0..PODS).step_by(5) {
        fixture.kill(&format!("pod-{index}")).await;
    }
    assert!(fixture.faults.struck() > 0, "the faults never struck");
    let dump = eventually("everything is seen", || async {
        let dump = get_json(&fixture, "/debug/cache").await;
        let (found, want) = (counted(&dump), listed(&fixture).await);
        let under_way = nodes(&dump).iter().any(|node| node["assumed"] != json!([]));
        if found == want && !under_way {
            Ok(dump)
        } else {
            Err((found, want, under_way))
        }
    })
    .await;
    assert_eq!(dump["pods"], PODS - PODS.div_ceil(5));
    assert_eq!(
        (&dump["synced"], &dump["unknownNodes"]),
        (&json!(true), &json!([]))
    );
    let native = &nodes(&dump)[0]["native"];
    assert_eq!(
        native["allocatable"],
        json!({"cpu": "4", "memory": "64Gi", "pods": "110"})
    );

    let one = get_json(&fixture, "/debug/cache/node-0").await;
    assert_eq!((&one["name"], &one["native"]), (&json!("node-0"), native));
    let (code, body) = get(&fixture, "/debug/cache/node-99").await;
    assert_eq!(code, 404);
    let error: api::http::Error = serde_json::from_str(&body).unwrap();
    assert_eq!(error.code, api::http::ErrorCode::NodeNotFound);
    assert_eq!(error.message, "unknown node node-99");
    fixture.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn during_a_drain_every_dump_is_of_one_instant() {
    const PODS: usize = 200;
    let mut fixture = Fixture::new().await;
    for node in 0..10 {
        fixture.add_node(&format!("node-{node}"), "2", 110).await;
    }
    // Slow enough to be looked at many times, and to have pods that are on their way.
    let bind = Matching::new("create", "pods/binding");
    let slow = Fault::Delay(Duration::from_millis(100));
    fixture.faults.every(1, bind, slow);
    let mut options = options();
    options.serve = Some(any_port());
    fixture.schedule_with_options(options);
    ready(&fixture).await;
    let create = async {
        for index in 0..PODS {
            fixture.add_pod(&format!("pod-{index}"), "100m").await;
        }
    };
    let watch = async {
        let (mut seen, mut assumed) = (Vec::new(), 0);
        loop {
            let dump = get_json(&fixture, "/debug/cache").await;
            let sums = counted(&dump);
            let mut pods = 0;
            for (name, [count, cpu, memory, non_zero]) in sums {
                assert_eq!(cpu, 100 * count, "{name}");
                assert_eq!((memory, non_zero), (0, count * DEFAULT_MEMORY), "{name}");
                assert!(cpu <= 2_000, "{name}");
                pods += count;
            }
            assert_eq!(dump["pods"], pods);
            assert_eq!(dump["unknownNodes"], json!([]));
            let under_way = |node: &Value| node["assumed"].as_array().unwrap().len();
            let now: usize = nodes(&dump).iter().map(under_way).sum();
            assert!(now as i64 <= pods);
            assumed += now;
            seen.push(pods);
            if pods == PODS as i64 && now == 0 {
                return (seen, assumed);
            }
        }
    };
    let ((), (seen, assumed)) = tokio::join!(create, watch);
    assert!(
        seen.is_sorted(),
        "no pod was forgotten on the way: {seen:?}"
    );
    let between = seen.iter().filter(|pods| (1..PODS as i64).contains(pods));
    assert!(between.count() > 0 && assumed > 0, "{seen:?}");
    fixture.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn decisions_go_on_while_a_client_reads_slowly() {
    const NODES: usize = 100;
    const PODS: usize = 20;
    let mut fixture = serving().await;
    // Long names and many of them make an answer that no socket holds.
    let mut offers = json!({"cpu": "8", "memory": "64Gi", "pods": "110"});
    for index in 0..80 {
        let group = [&"x".repeat(60)[..]; 4].join(".");
        offers[format!("{group}/{}-{index}", "y".repeat(50))] = "1".into();
    }
    for index in 0..NODES {
        let node = json!({
            "metadata": {"name": format!("node-{index}")},
            "status": {"capacity": offers, "allocatable": offers},
        });
        fixture
            .nodes()
            .create(&PostParams::default(), &object(node))
            .await
            .unwrap();
    }
    eventually("the nodes are known", || async {
        let status = get_json(&fixture, "/tidepool/v1/status").await;
        let known = &status["cluster"]["nodes"];
        if *known == NODES {
            Ok(())
        } else {
            Err(known.clone())
        }
    })
    .await;

    let socket = TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(4 << 10).unwrap();
    let mut slow = socket.connect(fixture.server()).await.unwrap();
    let request = b"GET /debug/cache HTTP/1.0\r\n\r\n";
    slow.write_all(request).await.unwrap();
    let mut answer = vec![0; 1_000];
    slow.read_exact(&mut answer).await.unwrap();

    for index in 0..PODS {
        let pod = json!({"metadata": {"name": format!("pod-{index}")}, "spec": {
            "schedulerName": SCHEDULER,
            "tolerations": [{"operator": "Exists"}],
            "containers": [{"name": "main", "image": "app:1"}],
        }});
        let _: Pod = fixture.create_pod(pod).await;
    }
    fixture.all_placed(PODS).await;
    let later = get_json(&fixture, "/debug/cache/node-0").await;
    assert_eq!(later["native"]["allocatable"]["cpu"], "8");

    // The answer is complete, and of the instant it was asked for.
    slow.read_to_end(&mut answer).await.unwrap();
    let answer = String::from_utf8(answer).unwrap();
    let (_, body) = answer.split_once("\r\n\r\n").unwrap();
    assert!(body.len() > 3 << 20, "{} bytes", body.len());
    let dump: Value = serde_json::from_str(body).unwrap();
    assert_eq!((nodes(&dump).len(), &dump["pods"]), (NODES, &json!(0)));
    fixture.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_nodes_lend_is_shown_beside_what_they_offer() {
    use crate::reclaimed::{define, job, options, report};
    const CPU: &str = "resource.katalyst.kubewharf.io/reclaimed_millicpu";
    let mut fixture = Fixture::new().await;
    define(&fixture).await;
    fixture.add_node("lends", "1", 110).await;
    fixture.add_node("plain", "1", 110).await;
    report(
        &fixture,
        "lends",
        json!({"resources": {"allocatable": {CPU: "5k"}}}),
    )
    .await;
    let mut options = options("QoSAwareNodeResourcesFit");
    options.serve = Some(any_port());
    fixture.schedule_with_options(options);
    for index in 0..3 {
        fixture.create_pod(job(&format!("job-{index}"), "2k")).await;
    }
    fixture.all_placed(2).await;
    let dump = eventually("both are seen there", || async {
        let dump = get_json(&fixture, "/debug/cache").await;
        match nodes(&dump).iter().any(|node| node["assumed"] != json!([])) {
            true => Err(dump),
            false => Ok(dump),
        }
    })
    .await;
    let [lends, plain] = &nodes(&dump)[..] else {
        panic!("two nodes");
    };
    let lent = &lends["reclaimed"];
    assert_eq!(
        (&lends["pods"], &lent["reported"]),
        (&json!(2), &json!(true))
    );
    assert_eq!(
        (&lent["allocatable"][CPU], &lent["requested"][CPU]),
        (&json!("5k"), &json!("4k"))
    );
    assert_eq!(
        lends["native"]["requested"]["cpu"], "0",
        "the accounts are apart"
    );
    assert_eq!(plain["reclaimed"], Value::Null);

    // A report that goes takes nothing from the accounts of pods.
    report(
        &fixture,
        "lends",
        json!({"resources": {"allocatable": null}}),
    )
    .await;
    eventually("nothing is lent", || async {
        let node = get_json(&fixture, "/debug/cache/lends").await;
        let lent = &node["reclaimed"];
        match (
            lent["allocatable"][CPU].as_str(),
            lent["requested"][CPU].as_str(),
        ) {
            (Some("0"), Some("4k")) => Ok(()),
            _ => Err(node),
        }
    })
    .await;
    fixture.stop().await;
}
