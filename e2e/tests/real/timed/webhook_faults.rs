//! The webhook goes wrong in every way, and pods are still created in time. `TIDEPOOL_FULL` has the large numbers.

use std::io::Read;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use e2e::Api;
use serde_json::json;

use crate::webhook_fixture::{Fixture, mid};
use crate::webhook_server::{Answer, TlsServer};

fn is_full() -> bool {
    std::env::var_os("TIDEPOOL_FULL").is_some()
}

/// The most that a pod may come later than without a webhook.
const LATER: Duration = Duration::from_millis(2_500);

/// Creates pods, some at a time, and returns how long each took. Every one must be created.
fn create_all(fixture: &Fixture, case: &str, count: usize, at_a_time: usize) -> Vec<Duration> {
    let next = AtomicU64::new(0);
    let times = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..at_a_time {
            scope.spawn(|| {
                let api = Api::new(&fixture.control_plane.admin()).unwrap();
                loop {
                    let i = next.fetch_add(1, Ordering::Relaxed);
                    if i >= count as u64 {
                        return;
                    }
                    let pod = mid(&format!("{case}-{i}"));
                    let begun = Instant::now();
                    let created = api.post("/api/v1/namespaces/default/pods", &pod);
                    times.lock().unwrap().push(begun.elapsed());
                    assert!(created.is_ok(), "{case}: {created:?}");
                }
            });
        }
    });
    let mut times = times.into_inner().unwrap();
    times.sort();
    assert_eq!(times.len(), count, "{case}");
    times
}

#[test]
fn pods_are_created_while_the_webhook_goes_wrong() {
    let fixture = Fixture::start(&[], None);
    let (mut process, address) = fixture.webhook("webhook", &[]);
    fixture.proxy.forward_to(&[address]);
    fixture.wait_until_asked();
    fixture.namespace("enforced", json!({"tidepool.io/admission": "enforce"}));
    let stored = fixture.create("enforced", &mid("judged")).unwrap();
    assert_eq!(stored["status"]["qosClass"], "BestEffort");

    let many = if is_full() { 1_000 } else { 100 };
    let wrong_certificate = TlsServer::start(Arc::new(|_| Answer::Patch(json!([]))));
    let reset = resetting_server();
    let sleeping = sleeping_server();
    process.stop();
    let slowest = |case: &str, count: usize, at_a_time| {
        let times = create_all(&fixture, case, count, at_a_time);
        let (half, all) = (times[count / 2], times[count - 1]);
        println!("{case}: half of the pods within {half:?}, all within {all:?}");
        all
    };
    // Calls that fail at once show how busy the machine is.
    let usual = slowest("killed", many, 4);
    let crowd = slowest("killed-crowd", 100, 20);
    for (case, server, count, at_a_time, usual) in [
        (
            "wrong-certificate",
            wrong_certificate.address,
            many,
            4,
            usual,
        ),
        ("reset", reset, many, 4, usual),
        ("asleep", sleeping, 100, 20, crowd),
    ] {
        fixture.proxy.forward_to(&[server]);
        let took = slowest(case, count, at_a_time);
        assert!(took < usual + LATER, "{case}: {took:?}, usually {usual:?}");
        let refused = fixture.create("enforced", &mid(case)).unwrap_err();
        assert!(
            refused.contains("failed calling webhook")
                && refused.contains("enforce.pods.tidepool.io"),
            "{case}: {refused}"
        );
    }
    large_answers(&fixture, usual);
}

/// Servers that the configurations trust, whose answers are too large. On the loopback device all of an answer arrives before the
/// API server gives up, and then the time is that of its JSON decoder: all pods are created. At the speed of a network they are
/// created in time, too.
fn large_answers(fixture: &Fixture, usual: Duration) {
    for (case, rate) in [("large-at-once", usize::MAX), ("large", 60 << 20)] {
        let server = TlsServer::start(Arc::new(move |_| Answer::Padded {
            length: 100 << 20,
            rate,
        }));
        fixture.proxy.forward_to(&[server.address]);
        trust(fixture, &server);
        let times = create_all(fixture, case, 5, 1);
        let slowest = times[4];
        assert!(
            rate == usize::MAX || slowest < usual + LATER,
            "{times:?}, usually {usual:?}"
        );
    }
}

fn trust(fixture: &Fixture, server: &TlsServer) {
    for plural in [
        "mutatingwebhookconfigurations",
        "validatingwebhookconfigurations",
    ] {
        let path = format!("/apis/admissionregistration.k8s.io/v1/{plural}/tidepool-webhook");
        let mut configuration = fixture.api.get(&path).unwrap();
        for webhook in configuration["webhooks"].as_array_mut().unwrap() {
            webhook["clientConfig"]["caBundle"] = json!(server.bundle());
        }
        let webhooks = json!({"webhooks": configuration["webhooks"]});
        fixture.api.patch(&path, &webhooks).unwrap();
    }
}

/// Ends every connection with a reset.
fn resetting_server() -> SocketAddr {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            // Unread bytes make the kernel reset the connection.
            let _ = stream.read(&mut [0; 1]);
        }
    });
    address
}

/// Accepts connections and says nothing for 30 s.
fn sleeping_server() -> SocketAddr {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        let mut open = std::collections::VecDeque::new();
        for stream in listener.incoming().flatten() {
            open.push_back((Instant::now(), stream));
            while open
                .front()
                .is_some_and(|(since, _)| since.elapsed() > Duration::from_secs(30))
            {
                open.pop_front();
            }
        }
    });
    address
}
