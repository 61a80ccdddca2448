//! Evictions.

use super::*;
use crate::model::Quantity;

#[test]
fn satisfaction() {
    // The vector of the notes, and its edges.
    for (request, limit, lower, upper, want) in [
        (10_000, 4000, 50, 80, 4000),
        (10_000, 5001, 50, 80, 0),
        (10_000, 0, 50, 80, 8000),
        (0, 4000, 50, 80, 0),
    ] {
        let release = evict::satisfaction_release(request, limit, lower, upper);
        assert!((release - want).abs() <= 1, "{request} {limit}: {release}");
    }
    for (usage, limit, want) in [
        (3900, 4000, true),
        (3500, 4000, false),
        (0, 900, true),
        (10, 0, false),
    ] {
        assert_eq!(evict::uses_limit(usage, limit, 90), want);
    }
}

#[test]
fn victims_by_class_then_by_use_against_request() {
    let mut it = Fixture::new(8, 32);
    let request = CpuMemory::new(1000, GIB);
    for (name, class, used) in [
        ("stream", QosClass::MidBestEffort, 3 * GIB),
        ("api", QosClass::MidLatencySensitive, 3 * GIB),
        ("small", QosClass::Lent, GIB / 2),
        ("large", QosClass::Lent, 2 * GIB),
        ("idle", QosClass::Lent, 0),
        ("guest", QosClass::Free, GIB),
        ("web", QosClass::Online, 4 * GIB),
    ] {
        it.pod(name, class, request);
        it.uses(name, 0, used);
    }
    it.pod("static", QosClass::Lent, request).is_static = true;
    it.uses("static", 0, 4 * GIB);
    it.add_up();
    let inputs = it.inputs();
    let mut candidates = evict::candidates(&inputs);
    candidates.sort_by(|a, b| evict::order(a, b, ReclaimedResource::Memory));
    let names: Vec<&str> = candidates.iter().map(|it| &*it.pod.name).collect();
    assert_eq!(names, ["guest", "large", "small", "idle", "api", "stream"]);
}

#[test]
fn memory_pressure_evicts_until_below_the_lower_threshold() {
    let mut it = Fixture::new(8, 100);
    for name in ["a", "b", "c", "d"] {
        it.pod(name, QosClass::Lent, CpuMemory::new(1000, GIB));
        it.uses(name, 10, 2 * GIB);
    }
    it.pod("web", QosClass::Online, CpuMemory::new(1000, GIB));
    it.uses("web", 100, 61 * GIB);
    let advice = it.step();
    assert_eq!(
        (evicted(&advice), taint(&advice, health::PRESSURE)),
        (vec![], None)
    );
    it.uses("web", 100, 64 * GIB);
    // 72%: 4% to release, which two pods do.
    let advice = it.step();
    assert_eq!(evicted(&advice), ["a", "b"]);
    assert_eq!(taint(&advice, health::PRESSURE), Some("memory"));
    assert_eq!(
        advice.evictions[0].reason,
        "memory use of the node is 72%, over the threshold of 70%; the pod uses 2048 MiB of 1024 MiB requested"
    );
    // They count as released while they end.
    assert_eq!(evicted(&it.steps(10)), Vec::<&str>::new());
    // 69% is above the lower threshold: the pressure lasts.
    it.pods.retain(|pod| &*pod.name != "a");
    it.sample.pods.remove("uid-a");
    it.uses("web", 100, 63 * GIB);
    assert_eq!(taint(&it.step(), health::PRESSURE), Some("memory"));
    it.uses("web", 100, 61 * GIB);
    assert_eq!(taint(&it.step(), health::PRESSURE), None);
}

/// The kubelet admits any request of a resource that its Node does not list.
#[test]
fn requests_beyond_any_machine_overflow_nothing() {
    let most = Quantity::parse(&i64::MAX.to_string()).unwrap();
    let mut it = Fixture::new(8, 100);
    for (name, class, tier) in [
        (
            "a",
            QosClass::Lent,
            "resource.katalyst.kubewharf.io/reclaimed_",
        ),
        ("b", QosClass::Lent, "kubernetes.io/batch-"),
        ("c", QosClass::MidBestEffort, "kubernetes.io/mid-"),
        ("d", QosClass::Online, ""),
    ] {
        let pod = it.pod(name, class, CpuMemory::ZERO);
        let cpu = if tier.ends_with('_') {
            "millicpu"
        } else {
            "cpu"
        };
        for resource in [cpu, "memory"] {
            let name = format!("{tier}{resource}");
            pod.containers[0].add_request(&name, most);
            pod.containers[0].add_limit(&name, most);
        }
        it.uses(name, 1500, 20 * GIB);
    }
    for second in 0..120 {
        it.pods[1].terminating = second > 60;
        let advice = it.step();
        assert_eq!(advice.reclaimed.allocatable, CpuMemory::ZERO);
    }
}

#[test]
fn a_refused_eviction_lets_the_next_pod_go() {
    let mut it = Fixture::new(8, 100);
    for name in ["a", "b"] {
        it.pod(name, QosClass::Lent, CpuMemory::new(1000, GIB));
        it.uses(name, 10, 4 * GIB);
    }
    it.system_memory = 63 * GIB;
    assert_eq!(evicted(&it.step()), ["a"]);
    let now = it.now;
    it.advisor.eviction_result(&"uid-a".into(), false, now);
    // After the cooldown of 4 s.
    let orders: Vec<Vec<String>> = (0..5)
        .map(|_| evicted(&it.step()).into_iter().map(str::to_owned).collect())
        .collect();
    assert_eq!(orders.concat(), ["b"]);
}

#[test]
fn at_most_six_evictions_a_minute_and_one_of_a_mid_workload_in_ten() {
    let mut it = Fixture::new(8, 100);
    for i in 0..40 {
        let class = match i {
            0..20 => QosClass::Lent,
            _ => QosClass::MidBestEffort,
        };
        let pod = it.pod(&format!("p{i:02}"), class, CpuMemory::new(10, MIB));
        pod.owner = Some("workload".into());
        it.uses(&format!("p{i:02}"), 1, MIB);
    }
    it.system_memory = 90 * GIB;
    let mut times: Vec<(i64, String)> = Vec::new();
    for second in 0..1300 {
        let advice = it.step();
        for order in &advice.evictions {
            times.push((second, order.name.to_string()));
        }
        let gone: Vec<Name> = advice.evictions.iter().map(|it| it.uid.clone()).collect();
        it.pods.retain(|pod| !gone.contains(&pod.uid));
        gone.iter().for_each(|uid| drop(it.sample.pods.remove(uid)));
    }
    let lent = times.iter().filter(|(_, name)| **name < *"p20").count();
    assert_eq!(lent, 20);
    for (second, _) in &times {
        let minute = *second..*second + 60;
        let count = times.iter().filter(|(at, _)| minute.contains(at)).count();
        assert!(count <= 6, "{count} from second {second}");
    }
    let mid: Vec<i64> = times
        .iter()
        .filter(|(_, name)| **name >= *"p20")
        .map(|(second, _)| *second)
        .collect();
    assert!((2..=3).contains(&mid.len()), "{mid:?}");
    assert!(
        mid.windows(2).all(|pair| pair[1] - pair[0] >= 600),
        "{mid:?}"
    );
}

#[test]
fn dissatisfied_best_effort_pods_are_evicted_but_not_mid_ls() {
    let mut it = Fixture::new(10, 100);
    it.pod("web", QosClass::Online, CpuMemory::new(8000, GIB));
    it.uses("web", 5000, GIB);
    for name in ["a", "b", "c"] {
        it.pod(name, QosClass::Lent, CpuMemory::new(2000, GIB));
        it.uses(name, 700, GIB);
    }
    it.pod(
        "api",
        QosClass::MidLatencySensitive,
        CpuMemory::new(2000, GIB),
    );
    it.uses("api", 10, GIB);
    // Two CPUs are granted for 6 requested: 33%.
    let mut first = None;
    for second in 0..60 {
        let advice = it.step();
        assert_eq!(advice.suppression.as_ref().unwrap().milli_cpu, 2000);
        if !advice.evictions.is_empty() && first.is_none() {
            let names: Vec<String> = evicted(&advice).iter().map(|&it| it.to_owned()).collect();
            first = Some((second, names));
        }
    }
    // 6000 * (0.8 - 1/3) = 2800 are two pods. A third of the window must be measured first.
    let (second, names) = first.unwrap();
    assert!((19..=21).contains(&second), "{second}");
    assert_eq!(names, ["a", "b"]);
}

#[test]
fn a_busy_node_evicts_mid_ls_before_mid_be() {
    let mut it = Fixture::new(10, 100);
    it.pod("web", QosClass::Online, CpuMemory::new(8000, GIB));
    it.uses("web", 9000, GIB);
    it.pod(
        "api",
        QosClass::MidLatencySensitive,
        CpuMemory::new(500, GIB),
    );
    it.uses("api", 400, GIB);
    it.pod("stream", QosClass::MidBestEffort, CpuMemory::new(200, GIB));
    it.uses("stream", 400, GIB);
    let mut orders = Vec::new();
    for _ in 0..45 {
        let advice = it.step();
        orders.extend(advice.evictions.iter().map(|it| it.name.to_string()));
    }
    // 94% without the best-effort pod: 900m to release.
    assert_eq!(orders, ["api", "stream"]);
}

#[test]
fn long_interference_evicts_a_pod_that_uses_the_resource() {
    let mut it = Fixture::new(8, 32);
    it.pod("web", QosClass::Online, CpuMemory::new(1000, GIB));
    it.pod("burn", QosClass::Lent, CpuMemory::new(1000, GIB));
    it.uses("burn", 100, MIB);
    it.pod("sleep", QosClass::Free, CpuMemory::ZERO);
    it.pressure("web", 40.0);
    let orders: Vec<String> = (0..110)
        .flat_map(|_| it.step().evictions)
        .map(|order| format!("{}: {}", order.name, order.reason))
        .collect();
    assert_eq!(
        orders,
        [
            "burn: cpu-pressure of online pod default/web is 40% for more than 60 s; the pod uses 100m of 1000m requested"
        ]
    );
}

#[test]
fn roles_of_containers_decide_the_request() {
    let mut it = Fixture::new(2, 4);
    let pod = it.pod("p", QosClass::Lent, CpuMemory::new(100, MIB));
    let mut init = pod.containers[0].clone();
    init.role = ContainerRole::Init;
    init.add_request(
        "kubernetes.io/batch-cpu",
        crate::model::Quantity::from_units(500),
    );
    pod.containers.push(init);
    assert_eq!(pod.request(), CpuMemory::new(600, MIB));
    let candidate = EvictionCandidate {
        pod,
        used: CpuMemory::ZERO,
        request: pod.request(),
    };
    assert_eq!(candidate.request.milli_cpu, 600);
    assert_eq!(Evictions::default().pressure(), None);
}
