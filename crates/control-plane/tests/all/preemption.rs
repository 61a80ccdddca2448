//! Pods with a higher priority preempt others.

use std::time::Duration;

use apiserver::faults::{Fault, Matching};
use control_plane::scheduler::Options;

use crate::metrics::{metrics, options, value};
use crate::reclaimed;
use crate::support::{Fixture, condition, eventually, pod};

#[tokio::test(flavor = "multi_thread")]
async fn victims_are_deleted_before_the_pod_is_bound() {
    let mut fixture = Fixture::new().await;
    fixture.add_node("node", "1", 110).await;
    fixture.schedule();
    for name in ["low-1", "low-2"] {
        fixture.add_pod(name, "400m").await;
    }
    fixture.all_placed(2).await;
    let urgent = fixture.add_urgent_pod("urgent", "900m").await;

    eventually("both victims are on their way out", || async {
        let mut leaving = 0;
        for name in ["low-1", "low-2"] {
            let victim = fixture.pods().get(name).await.unwrap();
            leaving += u32::from(victim.metadata.deletion_timestamp.is_some());
        }
        if leaving == 2 { Ok(()) } else { Err(leaving) }
    })
    .await;
    let victim = fixture.pods().get("low-1").await.unwrap();
    assert_eq!(
        condition(&victim, "DisruptionTarget"),
        Some((
            "True".into(),
            "PreemptionByScheduler".into(),
            "tidepool: preempting to accommodate a higher priority pod".into()
        ))
    );
    let waiting = eventually("the node is kept for the pod", || async {
        let pod = fixture.pods().get("urgent").await.unwrap();
        let nominated = pod.status.as_ref().unwrap().nominated_node_name.clone();
        nominated.map(|node| (pod, node)).ok_or("no nomination")
    })
    .await;
    assert_eq!(waiting.1, "node");
    assert_eq!(waiting.0.spec.unwrap().node_name, None);

    for name in ["low-1", "low-2"] {
        fixture.kill(name).await;
    }
    let placed = fixture.all_placed(1).await;
    assert_eq!(placed["urgent"], "node");
    let uid = urgent.metadata.uid.unwrap();
    let note = format!("Preempted by pod {uid} on node node");
    eventually("both victims have their event", || async {
        let events = fixture.events().await;
        let preempted = events
            .iter()
            .filter(|(_, reason, text)| reason == "Preempted" && *text == note);
        if preempted.count() == 2 {
            Ok(())
        } else {
            Err(events)
        }
    })
    .await;
    fixture.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_victim_gets_its_event_even_if_the_response_to_its_deletion_is_lost() {
    let mut fixture = Fixture::new().await;
    fixture.add_node("node", "1", 110).await;
    fixture.schedule();
    // Without a grace period it is gone at once, so that the second attempt finds nothing.
    let mut victim = pod("victim", "900m");
    victim["spec"]["terminationGracePeriodSeconds"] = 0.into();
    fixture.create_pod(victim).await;
    fixture.all_placed(1).await;
    let delete = Matching::new("delete", "pods");
    fixture.faults.next(1, delete, Fault::LostAnswer);
    fixture.add_urgent_pod("urgent", "900m").await;
    eventually("the victim's event is there", || async {
        let events = fixture.events().await;
        let told = events
            .iter()
            .any(|(pod, reason, _)| pod == "victim" && reason == "Preempted");
        if told { Ok(()) } else { Err(events) }
    })
    .await;
    eventually("the urgent pod is placed", || async {
        fixture.placed().await.remove("urgent").ok_or("it waits")
    })
    .await;
    fixture.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_victim_of_two_pods_gets_one_event() {
    let mut fixture = Fixture::new().await;
    fixture.add_node("node", "1", 110).await;
    fixture.schedule_with_options(options());
    fixture.add_pod("victim", "900m").await;
    fixture.all_placed(1).await;
    // It stays long enough to be chosen twice.
    let mark = Matching::new("patch", "pods/status");
    let slow = Fault::Delay(Duration::from_secs(2));
    fixture.faults.every(1, mark, slow);
    fixture.add_urgent_pod("urgent-1", "400m").await;
    let mut second = pod("urgent-2", "450m");
    second["spec"]["priorityClassName"] = "high".into();
    fixture.create_pod(second).await;
    eventually("it was chosen twice, and all is done", || async {
        let text = metrics(&fixture).await;
        let chosen = value(&text, "scheduler_preemption_victims_count");
        let busy = value(
            &text,
            r#"scheduler_goroutines{operation="DefaultPreemption"}"#,
        );
        match (chosen, busy) {
            (Some(2.0), Some(0.0)) => Ok(()),
            found => Err(found),
        }
    })
    .await;
    fixture.kill("victim").await;
    fixture.all_placed(2).await;
    let events = eventually("both pods have their events", || async {
        let events = fixture.events().await;
        let scheduled = events.iter().filter(|event| event.1 == "Scheduled");
        if scheduled.count() == 3 {
            Ok(events)
        } else {
            Err(events)
        }
    })
    .await;
    let preempted = events.iter().filter(|event| event.1 == "Preempted");
    assert_eq!(preempted.count(), 1, "{events:?}");
    fixture.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn attempts_and_victims_are_counted_with_each_preemption_plugin() {
    for plugin in ["DefaultPreemption", "QoSAwareNodeResourcesFit"] {
        let mut fixture = Fixture::new().await;
        fixture.add_node("node", "1", 110).await;
        fixture.schedule_with_options(Options {
            serve: options().serve,
            ..reclaimed::options(plugin)
        });
        fixture.add_pod("victim", "900m").await;
        fixture.all_placed(1).await;
        fixture.add_urgent_pod("urgent", "900m").await;
        eventually("the attempt and its victim are counted", || async {
            let text = metrics(&fixture).await;
            let attempts = value(&text, "scheduler_preemption_attempts_total");
            let victims = value(&text, "scheduler_preemption_victims_count");
            match attempts.zip(victims) {
                Some((attempts, 1.0)) if attempts >= 1.0 => Ok(()),
                found => Err(format!("{plugin}: {found:?}")),
            }
        })
        .await;
        fixture.stop().await;
    }
}
