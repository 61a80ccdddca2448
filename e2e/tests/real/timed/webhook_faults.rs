//! The webhook goes wrong in every way, and pods are still created in time. `TIDEPOOL_FULL` has the large numbers.

use std::io::Read;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use e2e::{Api, eventually};
use serde_json::json;

use crate::webhook_fixture::{Fixture, PATIENCE, Proxy, mid};
use crate::webhook_server::{Answer, TlsServer};

fn is_full() -> bool {
    std::env::var_os("TIDEPOOL_FULL").is_some()
}

/// The most that a pod may come later than without a webhook.
const LATER: Duration = Duration::from_millis(2_500);
/// The API server asks a mutating and a validating webhook for a pod, once each.
const CALLS_OF_A_POD: u64 = 2;
/// Pods that are created while answers are large.
const LARGE_PODS: usize = 5;
const LARGE: usize = 100 << 20;
/// The reference answer has this part of the bytes.
const PARTS: u32 = 4;
const REQUESTS: &str = "apiserver_admission_webhook_request_total";

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

/// Servers that the configurations trust, whose answers are too large.
fn large_answers(fixture: &Fixture, usual: Duration) {
    at_the_speed_of_a_network(fixture, usual);
    at_the_speed_of_loopback(fixture, usual);
}

/// No answer arrives in time, so the API server gives up each call after its timeout.
#[expect(clippy::print_stdout, reason = "shown when the test fails")]
fn at_the_speed_of_a_network(fixture: &Fixture, usual: Duration) {
    let server = large_server(LARGE, 60 << 20);
    fixture.proxy.forward_to(&[server.address]);
    trust(fixture, &server);
    let before = Calls::read(fixture);
    let times = create_all(fixture, "large", LARGE_PODS, 1);
    let calls = Calls::read(fixture).since(before);
    let slowest = times[LARGE_PODS - 1];
    println!("large: {times:?}, {calls:?}");
    assert!(slowest < usual + LATER, "{times:?}, usually {usual:?}");
    let all = LARGE_PODS as u64 * CALLS_OF_A_POD;
    let want = Calls {
        all,
        failed_open: all,
        rejected: 0,
    };
    assert_eq!(calls, want);
}

/// All of an answer may arrive before the API server gives up, and then it decodes the answer, for which no timeout exists. How long
/// that takes is measured beside it: the API server must decode the answer of another webhook before it creates a ConfigMap. So a
/// busy machine delays both.
#[expect(clippy::print_stdout, reason = "shown when the test fails")]
fn at_the_speed_of_loopback(fixture: &Fixture, usual: Duration) {
    let server = large_server(LARGE, usize::MAX);
    fixture.proxy.forward_to(&[server.address]);
    trust(fixture, &server);
    // A part of the bytes, so that the API server has them within the longest timeout of a webhook.
    let smaller = large_server(LARGE / PARTS as usize, usize::MAX);
    let mut reference = smaller.configuration("reference", "ValidatingWebhookConfiguration");
    let proxy = Proxy::start();
    proxy.forward_to(&[smaller.address]);
    let url = format!("https://{}/", proxy.address);
    reference["webhooks"][0]["name"] = json!("reference.example.com");
    reference["webhooks"][0]["clientConfig"]["url"] = json!(url);
    reference["webhooks"][0]["rules"][0]["resources"] = json!(["configmaps"]);
    let path = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations";
    fixture.create_at(path, &reference);
    let asked = || {
        let metrics = fixture.api.text("/metrics").unwrap();
        sum(&metrics, REQUESTS, "name=\"reference.example.com\"")
    };
    let create_map = |name: &str| {
        let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}});
        let maps = "/api/v1/namespaces/default/configmaps";
        fixture.api.post(maps, &map).unwrap();
    };
    let mut tries = 0;
    eventually("the API server asks the reference", PATIENCE, || {
        tries += 1;
        create_map(&format!("first-{tries}"));
        (asked() > 0)
            .then_some(())
            .ok_or_else(|| "it does not".to_owned())
    });
    let (before, asked_before) = (Calls::read(fixture), asked());
    let (mut decoding, mut creating) = (Costs::default(), Costs::default());
    for number in 0..LARGE_PODS {
        decoding.add(fixture, || create_map(&format!("decoded-{number}")));
        let case = format!("large-at-once-{number}");
        creating.add(fixture, || drop(create_all(fixture, &case, 1, 1)));
    }
    let calls = Calls::read(fixture).since(before);
    println!("large-at-once: {creating:?}, decoding a part: {decoding:?}, {calls:?}");
    assert_eq!(asked() - asked_before, LARGE_PODS as u64);
    let all = LARGE_PODS as u64 * CALLS_OF_A_POD;
    assert_eq!((calls.all, calls.rejected), (all, 0));
    let parts = u32::try_from(CALLS_OF_A_POD).unwrap() * PARTS;
    let bound = usual + LATER + decoding.slowest * parts;
    assert!(creating.slowest < bound, "{creating:?}, {decoding:?}");
    // An answer that comes late is not decoded, so this is the most.
    let most = 1.5 * f64::from(parts) * decoding.cpu;
    assert!(creating.cpu < most, "{creating:?}, {decoding:?}");
}

/// It allows everything, in an answer of this length, and sends so many bytes in a second.
fn large_server(length: usize, rate: usize) -> TlsServer {
    TlsServer::start(Arc::new(move |_| Answer::Padded { length, rate }))
}

/// What requests took from the client and from the API server.
#[derive(Debug, Default)]
struct Costs {
    slowest: Duration,
    /// Seconds of CPU time of kube-apiserver, for all requests.
    cpu: f64,
}

impl Costs {
    fn add(&mut self, fixture: &Fixture, request: impl FnOnce()) {
        let id = fixture.control_plane.apiserver_id().unwrap();
        let (begun, cpu) = (Instant::now(), cpu_seconds(id));
        request();
        self.slowest = self.slowest.max(begun.elapsed());
        self.cpu += cpu_seconds(id) - cpu;
    }
}

/// The CPU time of a process so far.
fn cpu_seconds(id: u32) -> f64 {
    let stat = std::fs::read_to_string(format!("/proc/{id}/stat")).unwrap();
    // The name of the program may contain spaces. Fields 14 and 15 are the ticks in user mode and in the kernel.
    let (_, fields) = stat.rsplit_once(')').unwrap();
    let ticks = fields.split_whitespace().skip(11).take(2);
    let ticks: f64 = ticks.map(|it| it.parse::<f64>().unwrap()).sum();
    ticks / 100.0
}

/// What the API server counted of the calls of our webhooks for new pods.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Calls {
    all: u64,
    /// Calls that failed, whose pods were created all the same.
    failed_open: u64,
    /// Calls whose pods were not created.
    rejected: u64,
}

impl Calls {
    fn read(fixture: &Fixture) -> Self {
        let metrics = fixture.api.text("/metrics").unwrap();
        let of_both = |metric: &str| -> u64 {
            let names = ["mutate.pods.tidepool.io", "validate.pods.tidepool.io"];
            let label = |name: &str| format!("name=\"{name}\"");
            let counts = names.map(|name| sum(&metrics, metric, &label(name)));
            counts.iter().sum()
        };
        Self {
            all: of_both(REQUESTS),
            failed_open: of_both("apiserver_admission_webhook_fail_open_count"),
            rejected: of_both("apiserver_admission_webhook_rejection_count"),
        }
    }

    fn since(self, before: Self) -> Self {
        Self {
            all: self.all - before.all,
            failed_open: self.failed_open - before.failed_open,
            rejected: self.rejected - before.rejected,
        }
    }
}

/// The sum of a counter over the label sets with this label.
fn sum(metrics: &str, metric: &str, label: &str) -> u64 {
    let lines = metrics.lines().filter(|line| {
        let rest = line.strip_prefix(metric);
        rest.is_some_and(|rest| rest.starts_with('{') && rest.contains(label))
    });
    let counts = lines.map(|line| line.rsplit(' ').next().unwrap().parse::<u64>().unwrap());
    counts.sum()
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
