use super::*;

const PATIENCE: Duration = Duration::from_secs(60);

fn at(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn lease(version: u32, holder: &str, names: &str) -> SchedulerLease {
    SchedulerLease {
        version: version.to_string().into(),
        holder: holder.to_owned(),
        duration: Some(at(15)),
        names: read_names(names),
    }
}

fn pod(uid: &str, scheduler: &str) -> UnseenPod {
    UnseenPod {
        namespace: "shop".into(),
        name: uid.into(),
        uid: uid.into(),
        version: "1".into(),
        scheduler: scheduler.into(),
    }
}

fn names(registry: &SchedulerRegistry, now: u64) -> String {
    join_names(&registry.plan(PATIENCE, 10, at(now)).names)
}

fn told(registry: &SchedulerRegistry, now: u64) -> Vec<String> {
    let plan = registry.plan(PATIENCE, 10, at(now));
    plan.waiting
        .iter()
        .map(|(pod, _)| pod.uid.to_string())
        .collect()
}

#[test]
fn a_lease_counts_while_it_changes() {
    let mut registry = SchedulerRegistry::default();
    assert_eq!(names(&registry, 0), "default-scheduler");
    registry.set_lease(
        "kube-system/b".into(),
        lease(1, "me", "tidepool,batch"),
        at(10),
    );
    let all = "batch,default-scheduler,tidepool";
    assert_eq!(names(&registry, 10), all);
    // A relist shows the same version: that is no renewal.
    registry.set_lease(
        "kube-system/b".into(),
        lease(1, "me", "tidepool,batch"),
        at(20),
    );
    assert_eq!(names(&registry, 29), all);
    assert_eq!(names(&registry, 30), "default-scheduler");
    registry.set_lease(
        "kube-system/b".into(),
        lease(2, "me", "tidepool,batch"),
        at(40),
    );
    assert_eq!(names(&registry, 59), all);
    registry.set_lease(
        "kube-system/b".into(),
        lease(3, "", "tidepool,batch"),
        at(41),
    );
    assert_eq!(names(&registry, 45), all, "another replica takes it");
    assert_eq!(names(&registry, 46), "default-scheduler", "it was released");
    registry.set_lease("kube-system/b".into(), lease(4, "me", "tidepool"), at(47));
    assert_eq!(names(&registry, 47), "default-scheduler,tidepool");
    registry.delete_lease("kube-system/b");
    assert_eq!(names(&registry, 47), "default-scheduler");
}

/// Registers many names of a namespace, on Leases with up to 60 of them.
fn flood(registry: &mut SchedulerRegistry, namespace: &str, count: usize) {
    for first in (0..count).step_by(60) {
        let last = count.min(first + 60);
        let many: Vec<String> = (first..last)
            .map(|it| format!("{namespace}-{it}"))
            .collect();
        let key = format!("{namespace}/lease-{first:04}");
        registry.set_lease(key.into(), lease(1, "me", &many.join(",")), at(0));
    }
}

#[test]
fn names_are_bounded_by_namespace_and_in_all() {
    let others = ["a", "b", "c", "d"];
    let mut registry = SchedulerRegistry::believing(others);
    for namespace in others {
        flood(&mut registry, namespace, 300);
    }
    flood(&mut registry, "tidepool-system", 200);
    let plan = registry.plan(PATIENCE, 10, at(0));
    let of = |namespace: &str| {
        let prefix = format!("{namespace}-");
        plan.names
            .iter()
            .filter(|it| it.starts_with(&prefix))
            .count()
    };
    // The cluster's own names, then those of the others, in the order of their namespaces.
    let counts = ["tidepool-system", "a", "b", "c", "d"].map(of);
    assert_eq!(counts, [200, 250, 250, 250, 49]);
    let limits = "at most 250 of a namespace and 1000 in all are registered";
    let faults = [("a", 50), ("b", 50), ("c", 50), ("d", 251)].map(|(namespace, count)| {
        format!("{count} scheduler names on Leases of namespace {namespace} are ignored: {limits}")
    });
    assert_eq!(plan.faults, faults);
}

#[test]
fn leases_of_users_register_nothing() {
    let mut registry = SchedulerRegistry::believing(["volcano-system"]);
    registry.set_lease("kube-system/ours".into(), lease(1, "me", "tidepool"), at(0));
    registry.set_lease("volcano-system/v".into(), lease(1, "me", "volcano"), at(0));
    flood(&mut registry, "team", 17 * 60);
    registry.set_pod(pod("forged", "team-1"), at(0));
    let all = "default-scheduler,tidepool,volcano";
    assert_eq!(names(&registry, 1), all);
    // What a user repeats is the same fault, which is logged once.
    let fault = "Leases of namespace team register no scheduler, such as Lease team/lease-0000: pass --scheduler-namespaces=team to `tidepool controllers` if only schedulers write Leases there";
    for again in 0..3 {
        registry.delete_lease("team/lease-0000");
        let key = format!("team/again-{again}");
        registry.set_lease(key.into(), lease(1, "me", "tidepool"), at(1));
        assert_eq!(registry.plan(PATIENCE, 10, at(1)).faults, [fault]);
    }
    registry.set_lease(
        "kube-system/ours".into(),
        lease(2, "me", "tidepool"),
        at(60),
    );
    assert_eq!(told(&registry, 60), ["forged"]);
    for other in 0..100 {
        let key = format!("n-{other}/lease");
        registry.set_lease(key.into(), lease(1, "me", "x"), at(60));
    }
    assert_eq!(
        registry.plan(PATIENCE, 10, at(60)).faults.len(),
        MOST_NAMESPACES_NAMED
    );
}

#[test]
fn a_namespace_is_forgotten_with_its_last_lease() {
    let mut registry = SchedulerRegistry::default();
    let set = |registry: &mut SchedulerRegistry, key: &str| {
        registry.set_lease(key.into(), lease(1, "me", "x"), at(0));
    };
    let named = |registry: &SchedulerRegistry| -> Vec<String> {
        let faults = registry.plan(PATIENCE, 10, at(0)).faults.into_iter();
        let word = |fault: String| fault.split(' ').nth(3).unwrap().to_owned();
        faults.map(word).collect()
    };
    for index in 0..MOST_NAMESPACES_NAMED {
        set(&mut registry, &format!("n-{index:02}/one"));
    }
    set(&mut registry, "n-00/two");
    set(&mut registry, "zone/late");
    assert_eq!(named(&registry).len(), MOST_NAMESPACES_NAMED);
    assert!(!named(&registry).contains(&"zone".to_owned()));
    // One of two: the namespace stays.
    registry.delete_lease("n-00/one");
    assert_eq!(named(&registry)[0], "n-00");
    registry.delete_lease("n-00/two");
    assert_eq!(named(&registry)[0], "n-01");
    // Its place is free for a namespace that comes, or whose Lease is renewed.
    set(&mut registry, "zone/late");
    assert_eq!(named(&registry).last().unwrap(), "zone");
    assert_eq!(named(&registry).len(), MOST_NAMESPACES_NAMED);
}

#[test]
fn durations_of_leases_are_bounded() {
    let mut registry = SchedulerRegistry::default();
    for (duration, end) in [(None, 20), (Some(Duration::MAX), 305), (Some(at(0)), 5)] {
        let lease = SchedulerLease {
            duration,
            ..lease(1, "me", "x")
        };
        registry.delete_lease("kube-system/b");
        registry.set_lease("kube-system/b".into(), lease, at(0));
        assert_eq!(
            names(&registry, end - 1),
            "default-scheduler,x",
            "{duration:?}"
        );
        assert_eq!(names(&registry, end), "default-scheduler", "{duration:?}");
    }
}

#[test]
fn pods_of_an_unknown_scheduler_are_named_after_a_minute() {
    let mut registry = SchedulerRegistry::default();
    registry.set_lease("kube-system/b".into(), lease(1, "me", "tidepool"), at(0));
    registry.set_pod(pod("misspelt", "tidepol"), at(5));
    registry.set_pod(pod("ours", "tidepool"), at(5));
    registry.set_pod(pod("native", DEFAULT_SCHEDULER), at(5));
    assert!(told(&registry, 64).is_empty());
    registry.set_lease("kube-system/b".into(), lease(2, "me", "tidepool"), at(60));
    let plan = registry.plan(PATIENCE, 10, at(65));
    let message = "no scheduler \"tidepol\" is running; did you mean \"tidepool\"?".to_owned();
    assert_eq!(plan.waiting, [(pod("misspelt", "tidepol"), message)]);
    // Another version of the pod does not begin the wait again.
    registry.set_pod(
        UnseenPod {
            version: "2".into(),
            ..pod("misspelt", "tidepol")
        },
        at(66),
    );
    assert_eq!(told(&registry, 66), ["misspelt"]);
    registry.delete_pod("misspelt");
    assert!(told(&registry, 66).is_empty());
    assert_eq!(told(&registry, 80), ["ours"], "its scheduler is gone");
    for uid in ["ours", "native", "never-seen"] {
        registry.delete_pod(uid);
    }
    assert!(registry.pods.is_empty() && registry.schedulers.is_empty());
}

#[test]
fn a_flood_of_pods_is_named_in_parts() {
    let mut registry = SchedulerRegistry::default();
    for number in 0..25 {
        registry.set_pod(pod(&format!("pod-{number:02}"), "x"), at(0));
    }
    let plan = registry.plan(PATIENCE, 10, at(60));
    assert_eq!(plan.waiting.len(), 10);
    for (pod, _) in &plan.waiting {
        registry.delete_pod(&pod.uid);
    }
    registry.postpone_pod("pod-24", at(60));
    assert_eq!(registry.plan(PATIENCE, 100, at(119)).waiting.len(), 14);
    assert_eq!(registry.plan(PATIENCE, 100, at(120)).waiting.len(), 15);
}

#[test]
fn faults_of_leases_are_reported() {
    let mut registry = SchedulerRegistry::default();
    registry.set_lease("kube-system/one".into(), lease(1, "me", "x,y"), at(0));
    registry.set_lease(
        "tidepool-system/two".into(),
        lease(1, "you", "y,no name"),
        at(0),
    );
    registry.set_lease("kube-system/released".into(), lease(1, "", "x"), at(0));
    let plan = registry.plan(PATIENCE, 10, at(0));
    assert_eq!(
        plan.faults,
        [
            "Lease tidepool-system/two: annotation tidepool.io/scheduler-names has \"no name\", which is not a valid scheduler name",
            "schedulers on Leases kube-system/one and tidepool-system/two all serve the name y: they compete for its pods",
        ]
    );
}
