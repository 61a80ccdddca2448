//! The largest pods, with the timeouts of deploy/webhook.yaml. A pod that is not answered about in time would pass unjudged.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::webhook_fixture::Fixture;

/// The mutating webhook has 1 s, and that of namespaces with `enforce` 2 s.
const ALL_TIMEOUTS: Duration = Duration::from_secs(3);
/// Other work on the machine only adds to the time of one try.
const TRIES: usize = 5;

fn pod(containers: usize, labels: Value, class: &str) -> Value {
    let container = |n| json!({"name": format!("c{n}"), "image": "i"});
    let containers: Vec<Value> = (0..containers).map(container).collect();
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "large", "labels": labels},
        "spec": {"priorityClassName": class, "containers": containers}})
}

#[test]
fn the_largest_pods_are_judged_within_the_timeouts_of_the_manifests() {
    let fixture = Fixture::start(&[], None);
    let (webhook, address) = fixture.webhook("webhook", &[]);
    fixture.proxy.forward_to(&[address]);
    fixture.wait_until_asked();
    for containers in [5_000, 8_000] {
        let wrong = pod(
            containers,
            json!({"koordinator.sh/qosClass": "LSR"}),
            "koord-mid",
        );
        let mut tries = (0..TRIES).map(|_| fixture.dry_run("default", &wrong));
        let is_judged = |answer: &Result<Value, String>| {
            let error = answer.as_ref().err();
            error.is_some_and(|it| it.contains("LSR does not go with"))
        };
        assert!(
            tries.any(|answer| is_judged(&answer)),
            "{containers} containers: {}",
            webhook.last_words()
        );
    }
    // Here a pod passes only with an answer of the validating webhook.
    fixture.namespace("enforced", json!({"tidepool.io/admission": "enforce"}));
    let valid = pod(5_000, json!({}), "koord-prod");
    let mut tries = (0..TRIES).map(|_| {
        let begun = Instant::now();
        let answer = fixture.dry_run("enforced", &valid);
        (answer.map(drop), begun.elapsed())
    });
    let is_in_time = |(answer, time): &(Result<(), String>, Duration)| {
        println!("5,000 containers took {time:.1?}");
        answer.is_ok() && *time < ALL_TIMEOUTS
    };
    assert!(
        tries.any(|one| is_in_time(&one)),
        "{}",
        webhook.last_words()
    );
}
