use super::*;
use crate::binding::kubelet::CRITICAL_PRIORITY;
use crate::model::{AuthorClaims, ZoneSet};
use crate::testing::{NodeBuilder, PodBuilder, node, pod, policy, report};

const CPU: &str = "resource.katalyst.kubewharf.io/reclaimed_millicpu";
const MIB: i64 = 1 << 20;

fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// A gate with this node, whose uid is `uid-of-n`.
fn gate(node: NodeBuilder) -> BindGate {
    let mut gate = BindGate::default();
    gate.apply(node.build().into());
    gate.set_machine(
        "n".into(),
        Machine {
            uid: "uid-of-n".into(),
            os: "linux".into(),
            supports_strict_groups: false,
        },
    );
    gate
}

fn observe(gate: &mut BindGate, pod: &PodBuilder) -> GatePod {
    let pod = GatePod::new(pod.build());
    gate.set_pod(pod.clone());
    pod
}

fn request(pod: &GatePod, node: &str) -> BindRequest {
    BindRequest {
        namespace: pod.pod.namespace().clone(),
        pod: pod.pod.name.clone(),
        uid: pod.pod.uid.clone(),
        node: node.into(),
        zones: pod.pod.zones,
        ..BindRequest::default()
    }
}

/// `ok`, or the words of the refusal.
fn bind_at(gate: &mut BindGate, pod: &PodBuilder, node: &str, now: Duration) -> String {
    let pod = observe(gate, pod);
    let judged = gate.judge(&pod, &request(&pod, node), now);
    gate.verify().unwrap();
    judged.map_or_else(|refusal| refusal.to_string(), |()| "ok".to_owned())
}

fn bind(gate: &mut BindGate, pod: &PodBuilder) -> String {
    bind_at(gate, pod, "n", seconds(0))
}

fn small() -> NodeBuilder {
    node("n").allocatable("cpu=2 memory=4Gi pods=9")
}

const FULL: &str =
    "OutOfcpu: Node didn't have enough resource: cpu, requested: 1500, used: 1500, capacity: 2000";

#[test]
fn an_allowed_bind_takes_capacity_at_once() {
    let mut gate = gate(small());
    let big = |name: &str| pod(name).container("cpu=1500m");
    assert_eq!(bind(&mut gate, &big("a")), "ok");
    assert_eq!(bind(&mut gate, &big("b")), FULL);
    assert_eq!(gate.holds(), 1);
    // A bind is repeated, as after a lost answer.
    assert_eq!(bind(&mut gate, &big("a")), "ok");
    assert_eq!(gate.holds(), 1);

    observe(&mut gate, &big("a").on("n"));
    assert_eq!(gate.holds(), 0);
    assert_eq!(bind(&mut gate, &big("b")), FULL);
    gate.remove_pod(&Key::new("default", "a"), "a");
    assert_eq!(bind(&mut gate, &big("b")), "ok");
}

#[test]
fn what_is_refused() {
    let gpu = || small().allocatable("example.com/gpu=1");
    for (case, node, placed, bound, want) in [
        (
            "a taken port",
            small(),
            vec![pod("o").host_port("", "TCP", 80)],
            pod("p").host_port("", "TCP", 80),
            "NodePorts: Predicate NodePorts failed: node(s) didn't have free ports for the requested pod ports",
        ),
        (
            "an extended resource",
            gpu(),
            vec![pod("o").container("example.com/gpu=1")],
            pod("p").container("example.com/gpu=1"),
            "OutOfexample.com/gpu: Node didn't have enough resource: example.com/gpu, requested: 1, used: 1, capacity: 1",
        ),
        (
            "a critical pod",
            small(),
            vec![pod("o").container("cpu=2")],
            pod("p").priority(CRITICAL_PRIORITY).container("cpu=2"),
            "ok",
        ),
        (
            "reclaimed resources of a node that lends nothing",
            small(),
            vec![],
            pod("p").reclaimed().container(&format!("{CPU}=1")),
            "the node has no CustomNodeResource",
        ),
    ] {
        let mut gate = gate(node);
        for other in placed {
            observe(&mut gate, &other.on("n"));
        }
        assert_eq!(bind(&mut gate, &bound), want, "{case}");
    }
}

#[test]
fn what_the_pod_and_the_machine_say_beside_the_model() {
    let strict = |gate: &mut BindGate, os: Option<&str>, strict_groups| {
        let pod = GatePod {
            os: os.map(Name::from),
            strict_groups,
            ..GatePod::new(pod("p").build())
        };
        let judged = gate.judge(&pod, &request(&pod, "n"), seconds(0));
        judged.map_or_else(|refusal| refusal.class(), |()| "ok")
    };
    let mut gate = gate(small());
    assert_eq!(strict(&mut gate, Some("windows"), false), "kubelet");
    assert_eq!(strict(&mut gate, None, true), "kubelet");
    assert_eq!(strict(&mut gate, Some("linux"), false), "ok");

    let machine = |os: &str| Machine {
        uid: "uid-of-n".into(),
        os: os.into(),
        supports_strict_groups: true,
    };
    for (case, os, pod_os, want) in [
        ("its own system", "windows", "windows", "ok"),
        ("another system", "windows", "linux", "kubelet"),
        ("an unnamed system is Linux", "", "linux", "ok"),
    ] {
        gate.set_machine("n".into(), machine(os));
        assert_eq!(strict(&mut gate, Some(pod_os), false), want, "{case}");
    }
    assert_eq!(strict(&mut gate, None, true), "ok");
}

#[test]
fn nodes_and_pods_that_are_not_there() {
    let mut gate = gate(small());
    assert_eq!(
        bind_at(&mut gate, &pod("p"), "m", seconds(0)),
        "there is no such node"
    );
    let known = observe(&mut gate, &pod("p"));
    let other_node = BindRequest {
        node_uid: "older".into(),
        ..request(&known, "n")
    };
    let refusal = gate.judge(&known, &other_node, seconds(0)).unwrap_err();
    assert_eq!(refusal.to_string(), "the node has uid uid-of-n, not older");
    gate.remove_machine("n");
    // Without the Node's uid there is nothing to compare.
    assert_eq!(gate.judge(&known, &other_node, seconds(0)), Ok(()));
    gate.settle("p", &ReadPod::Gone, seconds(0));
    let other_pod = BindRequest {
        uid: "older".into(),
        ..request(&known, "n")
    };
    assert!(matches!(gate.find(&other_pod), KnownPod::Unknown));
    let refusal = gate.judge(&known, &other_pod, seconds(0)).unwrap_err();
    assert_eq!(refusal.to_string(), "the pod has uid p, not older");
    assert!(matches!(
        gate.find(&request(&known, "n")),
        KnownPod::Waiting(_)
    ));
    let unnamed = BindRequest {
        uid: Name::default(),
        ..request(&known, "n")
    };
    assert!(matches!(gate.find(&unnamed), KnownPod::Unknown));
    // Late: a new pod has the name.
    gate.remove_pod(&Key::new("default", "p"), "older");
    assert!(matches!(
        gate.find(&request(&known, "n")),
        KnownPod::Waiting(_)
    ));
    observe(&mut gate, &pod("p").on("n"));
    assert!(matches!(gate.find(&request(&known, "n")), KnownPod::Bound));
    // The API server refuses it; there is nothing to hold.
    assert_eq!(
        gate.judge(&known, &request(&known, "m"), seconds(0)),
        Ok(())
    );
    assert_eq!(gate.holds(), 0);
}

#[test]
fn the_reclaimed_account_and_the_idle_pool() {
    let reclaimed = |name: &str| pod(name).reclaimed().container(&format!("{CPU}=1000"));
    let batch = |name: &str| pod(name).container("kubernetes.io/batch-cpu=1000");
    let mut gate = gate(small().allocatable("kubernetes.io/batch-cpu=4000"));
    gate.apply(report("n").lends(2000, 0).pool(3000, 100 * MIB).into());
    assert_eq!(bind(&mut gate, &reclaimed("a")), "ok");
    assert_eq!(bind(&mut gate, &reclaimed("b")), "ok");
    assert_eq!(
        bind(&mut gate, &reclaimed("c")),
        format!(
            "OutOf{CPU}: Node didn't have enough resource: {CPU}, requested: 1000, used: 2000, capacity: 2000"
        )
    );
    assert_eq!(bind(&mut gate, &batch("d")), "ok");
    assert_eq!(
        bind(&mut gate, &batch("e")),
        "Node didn't have enough idle cpu for reclaimed and batch pods together, requested: 1000, used: 3000, capacity: 3000"
    );
    let least = pod("f").container("kubernetes.io/batch-cpu=1");
    assert_eq!(
        bind(&mut gate, &least),
        "Node didn't have enough idle cpu for reclaimed and batch pods together, requested: 1, used: 3000, capacity: 3000"
    );
    // The pool shrinks below what has been bound: other pods do not care.
    gate.apply(report("n").lends(2000, 0).pool(1000, 100 * MIB).into());
    assert_eq!(bind(&mut gate, &pod("web").container("cpu=1")), "ok");
}

#[test]
fn the_idle_pool_without_tier_resources() {
    let reclaimed = |name: &str| pod(name).reclaimed().container(&format!("{CPU}=1000"));
    let mut gate = gate(small());
    gate.apply(report("n").lends(3000, 0).pool(2000, 0).into());
    assert_eq!(bind(&mut gate, &reclaimed("a")), "ok");
    assert_eq!(bind(&mut gate, &reclaimed("b")), "ok");
    assert_eq!(
        bind(&mut gate, &reclaimed("c")),
        "Node didn't have enough idle cpu for reclaimed and batch pods together, requested: 1000, used: 2000, capacity: 2000"
    );
}

#[test]
fn units_have_a_limit() {
    let web = |name: &str| pod(name).label("app", "web");
    let mut gate = gate(small().label("kind", "spot"));
    gate.apply(node("m").label("kind", "spot").build().into());
    gate.apply(
        policy("p")
            .selects("app", "web")
            .unit("spot", 1, Some(2), "kind=spot")
            .into(),
    );
    observe(&mut gate, &web("a").on("m"));
    // The policy does not select it.
    observe(&mut gate, &pod("beside").on("m"));
    assert_eq!(bind(&mut gate, &web("b")), "ok");
    assert_eq!(
        bind(&mut gate, &web("c")),
        "ResourcePolicy default/p: unit \"spot\" is full (maxCount 2)"
    );
    assert_eq!(bind(&mut gate, &pod("other")), "ok");
    assert_eq!(bind(&mut gate, &web("d").namespace("elsewhere")), "ok");
}

#[test]
fn numa_zones_have_one_owner() {
    let dedicated = |name: &str, zones: &str| {
        let pod = pod(name).dedicated(None).container("cpu=1");
        pod.zones(zones)
    };
    let mut gate = gate(node("n").allocatable("cpu=8 memory=8Gi"));
    gate.apply(
        report("n")
            .zone("0", 0, "cpu=4 memory=4Gi")
            .zone("0", 1, "cpu=4 memory=4Gi")
            .into(),
    );
    assert_eq!(bind(&mut gate, &dedicated("a", "0")), "ok");
    assert_eq!(
        bind(&mut gate, &dedicated("b", "0")),
        "NUMA zone 0 is in use by pod default/a"
    );
    // It fits what the kubelet counts, but a has all of zone 0.
    assert_eq!(
        bind(&mut gate, &pod("web").container("cpu=5")),
        "OutOfcpu: Node didn't have enough resource: cpu, requested: 5000, used: 4000, capacity: 8000; pods with NUMA zones of their own use whole zones"
    );
    assert_eq!(bind(&mut gate, &pod("web").container("cpu=3")), "ok");
    assert_eq!(
        bind(&mut gate, &dedicated("c", "1")),
        "without NUMA zone 1, the other pods of the node do not fit"
    );
    // Its kubelet makes room for it.
    let vital = pod("vital").priority(CRITICAL_PRIORITY);
    assert_eq!(bind(&mut gate, &vital.container("cpu=4")), "ok");
}

#[test]
fn zones_may_be_shared_but_not_with_their_owner() {
    let with_zones = |offers: &str| {
        let mut gate = gate(node("n").allocatable(offers));
        gate.apply(
            report("n")
                .zone("0", 0, "cpu=4 memory=4Gi")
                .zone("0", 1, "cpu=4 memory=4Gi")
                .into(),
        );
        gate
    };
    let one = |name: &str, exclusive: bool, zones: &str| {
        let pod = pod(name).dedicated(Some(exclusive)).container("cpu=1");
        pod.zones(zones)
    };
    for (case, holder, bound, want) in [
        (
            "both share",
            one("a", false, "0"),
            one("b", false, "0"),
            "ok",
        ),
        (
            "the pod wants it alone",
            one("a", false, "0"),
            one("b", true, "0"),
            "NUMA zone 0 is in use by pod default/a",
        ),
        (
            "the holder has it alone",
            one("a", true, "0"),
            one("b", false, "0"),
            "NUMA zone 0 is in use by pod default/a",
        ),
    ] {
        let mut gate = with_zones("cpu=8 memory=8Gi");
        assert_eq!(bind(&mut gate, &holder), "ok", "{case}");
        assert_eq!(bind(&mut gate, &bound), want, "{case}");
    }
    // An owner counts beside pods that share.
    let mut gate = with_zones("cpu=8 memory=8Gi");
    assert_eq!(bind(&mut gate, &one("a", true, "0")), "ok");
    assert_eq!(bind(&mut gate, &one("b", false, "1")), "ok");
    let refused = bind(&mut gate, &pod("web").container("cpu=5"));
    assert!(refused.ends_with("use whole zones"), "{refused}");

    let mut gate = with_zones("cpu=16 memory=8Gi");
    let two = |name: &str| pod(name).dedicated(None).container("cpu=5").zones("0,1");
    assert_eq!(bind(&mut gate, &two("a")), "ok");
    let refused = bind(&mut gate, &two("b").priority(CRITICAL_PRIORITY));
    assert_eq!(refused, "NUMA zones 0,1 are in use by pod default/a");
}

/// A Binding without the annotation leaves the pod its own, so that is judged.
#[test]
fn zones_that_a_pod_has_after_its_bind_are_judged() {
    let report = || {
        let report = report("n").zone("0", 0, "cpu=4 memory=4Gi");
        report.zone("0", 1, "cpu=4 memory=4Gi")
    };
    let set = |zones: &str| ZoneSet::parse(zones).ok();
    let in_use = "NUMA zone 0 is in use by pod default/a";
    for (case, cpu, own, bound, want) in [
        ("the author's", "cpu=1", set("0"), None, in_use),
        ("an idle one", "cpu=1", set("1"), None, "ok"),
        ("replaced by none", "cpu=1", set("0"), set(""), "ok"),
        ("replaced by another", "cpu=1", set("0"), set("1"), "ok"),
        (
            "replaced by one in use",
            "cpu=1",
            set("1"),
            set("0"),
            in_use,
        ),
        (
            "more than it can need",
            "cpu=1m",
            set("1"),
            set("0,1"),
            in_use,
        ),
        (
            "of which the first is idle",
            "cpu=1m",
            None,
            set("1,2"),
            "ok",
        ),
    ] {
        let mut gate = gate(node("n").allocatable("cpu=8 memory=8Gi"));
        gate.apply(report().into());
        let holder = pod("a").dedicated(None).container("cpu=1").zones("0");
        assert_eq!(bind(&mut gate, &holder), "ok");
        let claims = AuthorClaims {
            zones: own,
            unit: false,
        };
        let asks = pod("b").dedicated(None).container(cpu);
        let asks = observe(&mut gate, &asks.with(|pod| pod.claims = claims));
        let bind = BindRequest {
            zones: bound,
            ..request(&asks, "n")
        };
        let judged = gate.judge(&asks, &bind, seconds(0));
        let found = judged.map_or_else(|refusal| refusal.to_string(), |()| "ok".to_owned());
        assert_eq!(found, want, "{case}");
        gate.verify().unwrap();
    }
}

#[test]
fn a_pod_without_requests_fits_beside_zones_that_are_larger_than_the_node() {
    let mut gate = gate(node("n").allocatable("cpu=8 memory=6Gi"));
    gate.apply(
        report("n")
            .zone("0", 0, "cpu=4 memory=4Gi")
            .zone("0", 1, "cpu=4 memory=4Gi")
            .into(),
    );
    for (name, zones) in [("a", "0"), ("b", "1")] {
        let pod = pod(name).dedicated(None).container("cpu=1 memory=1Gi");
        assert_eq!(bind(&mut gate, &pod.zones(zones)), "ok");
    }
    assert_eq!(bind(&mut gate, &pod("log-collector")), "ok");
    let refused = bind(&mut gate, &pod("web").container("memory=1Gi"));
    assert!(refused.starts_with("OutOfmemory"), "{refused}");
    let refused = bind(&mut gate, &pod("tiny").container("memory=1"));
    assert!(refused.starts_with("OutOfmemory"), "{refused}");
}

#[test]
fn a_lost_bind_is_read_after_a_while() {
    let mut gate = gate(small());
    gate.apply(node("m").allocatable("cpu=2").build().into());
    let big = |name: &str| pod(name).container("cpu=1500m");
    assert_eq!(bind(&mut gate, &big("a")), "ok");
    assert_eq!(bind_at(&mut gate, &big("a"), "m", seconds(10)), "ok");
    // Both binds of the pod count.
    assert_eq!(gate.holds(), 2);
    assert_eq!(bind(&mut gate, &big("b")), FULL);

    assert_eq!(gate.late_pods(seconds(14)), []);
    let late = gate.late_pods(seconds(15));
    assert_eq!((late.len(), &*late[0].uid, &*late[0].name), (1, "a", "a"));
    assert_eq!(gate.late_pods(seconds(16)), [], "it is being read");
    assert_eq!(gate.late_pods(seconds(20)).len(), 1, "no answer came");

    gate.settle("a", &ReadPod::Unbound, seconds(15));
    assert_eq!(gate.holds(), 1, "the later bind may be on its way");
    assert_eq!(bind(&mut gate, &big("b")), "ok");
    gate.settle("a", &ReadPod::On("m".into()), seconds(25));
    assert_eq!(gate.holds(), 2, "the watch will show it");
    gate.settle("a", &ReadPod::On("n".into()), seconds(25));
    gate.settle("b", &ReadPod::Gone, seconds(25));
    assert_eq!(gate.holds(), 0);
    gate.verify().unwrap();
}

#[test]
fn a_later_bind_of_a_pod_is_late_later() {
    let mut gate = gate(small());
    gate.apply(node("m").allocatable("cpu=2").build().into());
    let asks = pod("a").container("cpu=1");
    assert_eq!(bind(&mut gate, &asks), "ok");
    assert_eq!(bind_at(&mut gate, &asks, "m", seconds(10)), "ok");
    assert_eq!(gate.late_pods(seconds(15)).len(), 1);
    gate.settle("a", &ReadPod::Unbound, seconds(15));
    assert_eq!(gate.holds(), 1);
    assert_eq!(gate.late_pods(seconds(24)), []);
    assert_eq!(gate.late_pods(seconds(25)).len(), 1);
}

#[test]
fn pods_are_counted_once() {
    let mut gate = gate(small());
    observe(&mut gate, &pod("a"));
    observe(&mut gate, &pod("b"));
    observe(&mut gate, &pod("c").on("n"));
    assert_eq!((gate.pods(), gate.holds()), (3, 0));
    assert_eq!(bind(&mut gate, &pod("a")), "ok");
    assert_eq!((gate.pods(), gate.holds()), (3, 1), "a hold is no pod");
    observe(&mut gate, &pod("a").on("n"));
    assert_eq!((gate.pods(), gate.holds()), (3, 0));
    assert_eq!((gate.waiting.len(), gate.nodes()), (1, 1));
}

#[test]
fn dry_runs_hold_nothing_and_holds_are_bounded() {
    let mut gate = gate(small());
    let known = observe(&mut gate, &pod("p").container("cpu=2"));
    let dry = BindRequest {
        dry_run: true,
        ..request(&known, "n")
    };
    assert_eq!(gate.judge(&known, &dry, seconds(0)), Ok(()));
    assert_eq!(gate.holds(), 0);
    assert_eq!(
        gate.judge(&known, &request(&known, "n"), seconds(0)),
        Ok(())
    );
    // It does not end the hold of the bind before it.
    assert_eq!(gate.judge(&known, &dry, seconds(0)), Ok(()));
    assert_eq!(gate.holds(), 1);
    for number in 0..20 {
        let name = format!("m{number}");
        gate.apply(node(&name).allocatable("cpu=2").build().into());
        let judged = gate.judge(&known, &request(&known, &name), seconds(0));
        assert_eq!(judged.is_ok(), number < 7, "{number}");
    }
    assert_eq!(gate.holds(), 8);
    // These hold nothing more.
    assert_eq!(
        gate.judge(&known, &request(&known, "n"), seconds(0)),
        Ok(())
    );
    let dry = BindRequest {
        dry_run: true,
        ..request(&known, "m19")
    };
    assert_eq!(gate.judge(&known, &dry, seconds(0)), Ok(()));
    gate.remove_pod(&Key::new("default", "p"), "p");
    assert_eq!((gate.holds(), gate.pods()), (0, 0));
    gate.verify().unwrap();
}

#[test]
fn a_refused_repetition_keeps_the_hold_of_the_bind_before() {
    let mut gate = gate(small());
    let big = pod("a").container("cpu=1500m");
    assert_eq!(bind(&mut gate, &big), "ok");
    gate.apply(node("n").allocatable("cpu=1").build().into());
    assert!(bind(&mut gate, &big).starts_with("OutOfcpu"));
    assert_eq!(gate.holds(), 1);
    gate.verify().unwrap();
}
