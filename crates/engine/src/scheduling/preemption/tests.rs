//! Who may preempt, who must go, which node is taken, and what is said when nothing helps.

use super::*;
use crate::cluster::CsiLimits;
use crate::cluster::Update;
use crate::model::{Requirement, Selector, VolumeSource};
use crate::scheduling::plugins;
use crate::scheduling::profile::{Enabled, Profile};
use crate::testing::{NodeBuilder, PodBuilder, node, pod};

const NOW: Timestamp = Timestamp(1_000_000_000_000);

fn profile() -> Profile {
    let names = ["TaintToleration", "NodeResourcesFit", "PodTopologySpread"];
    let plugins = names.map(|name| Enabled::new(plugins::find(name).unwrap(), 1).unwrap());
    Profile::new("default-scheduler", plugins.to_vec())
}

/// A node of four cores.
fn four(name: &str) -> NodeBuilder {
    node(name).allocatable("cpu=4 memory=16Gi")
}

fn cluster(nodes: Vec<NodeBuilder>, pods: Vec<PodBuilder>) -> Cluster {
    let mut cluster = Cluster::new();
    for node in nodes {
        cluster.apply(Update::from(node.build())).unwrap();
    }
    for pod in pods {
        cluster.apply(Update::from(pod.build())).unwrap();
    }
    cluster
}

fn cores(name: &str, node: &str, cores: &str, priority: i32) -> PodBuilder {
    pod(name)
        .on(node)
        .container(&format!("cpu={cores}"))
        .priority(priority)
}

fn started(pod: PodBuilder, at: i64) -> PodBuilder {
    pod.with(|pod| pod.started = Some(Timestamp(at)))
}

fn budget(cluster: &mut Cluster, name: &str, app: &str, allowed: i32) {
    cluster
        .apply(Update::from(Budget {
            namespace: "default".into(),
            name: name.into(),
            selector: Selector::all([Requirement::equals("app", app)]),
            disruptions_allowed: allowed,
            disrupted_pods: Vec::new(),
        }))
        .unwrap();
}

fn diagnosis(scan: &mut Scan) -> Diagnosis {
    assert_eq!(scan.filter().map(|nodes| nodes.len()), Ok(0));
    scan.diagnose()
}

/// The message if there are no candidates, and the search.
fn search_for(cluster: &Cluster, pod: &PodBuilder) -> (String, Search) {
    let (profile, pod) = (profile(), pod.build());
    let mut scan = Scan::new(cluster, &profile, &pod);
    let diagnosis = diagnosis(&mut scan);
    let search = |scope| search(&scan, &diagnosis, scope, NOW);
    let (all, only) = (
        search(SearchScope::All),
        search(SearchScope::Best).candidates,
    );
    let chosen = best(&all.candidates, NOW);
    assert_eq!(only.first(), chosen.first().copied());
    (message(&diagnosis, &all, &scan), all)
}

/// `node: victims` of the chosen candidate, with `!` for each violation.
fn chosen(cluster: &Cluster, pod: &PodBuilder) -> String {
    let (_, search) = search_for(cluster, pod);
    let best = best(&search.candidates, NOW);
    let candidate = best.first().expect("a candidate");
    let victims: Vec<&str> = candidate.victims.iter().map(|pod| &*pod.name).collect();
    let violations = "!".repeat(candidate.violations);
    format!("{}: {}{violations}", candidate.node, victims.join(" "))
}

fn wants(cores: &str) -> PodBuilder {
    pod("p").container(&format!("cpu={cores}")).priority(100)
}

#[test]
fn victims_are_the_least_important_that_suffice() {
    for (case, pods, want) in [
        (
            "lower priorities go first",
            vec![cores("a", "n", "2", 5), cores("b", "n", "2", 1)],
            "n: b",
        ),
        (
            "equal priorities: the youngest goes",
            vec![
                started(cores("old", "n", "2", 5), 10),
                started(cores("young", "n", "2", 5), 20),
            ],
            "n: young",
        ),
        (
            "who has not started yet is the youngest",
            vec![
                cores("pending", "n", "2", 5),
                started(cores("old", "n", "2", 5), 10),
            ],
            "n: pending",
        ),
        (
            "an important pod stays, and two small ones go for it",
            vec![
                cores("important", "n", "2", 9),
                cores("x", "n", "1", 1),
                cores("y", "n", "1", 2),
            ],
            "n: y x",
        ),
        (
            "pods of the same or a higher priority are no victims",
            vec![cores("same", "n", "2", 100), cores("low", "n", "2", 0)],
            "n: low",
        ),
    ] {
        let cluster = cluster(vec![four("n")], pods);
        assert_eq!(chosen(&cluster, &wants("2")), want, "{case}");
    }
}

#[test]
fn pods_with_a_budget_are_spared_first() {
    let app = |pod: PodBuilder, app: &str| pod.label("app", app);
    let pods = || {
        vec![
            app(cores("guarded", "n", "2", 1), "a"),
            app(cores("free", "n", "2", 5), "b"),
        ]
    };
    let mut one = cluster(vec![four("n")], pods());
    budget(&mut one, "a", "a", 0);
    assert_eq!(
        chosen(&one, &wants("2")),
        "n: free",
        "though its priority is higher"
    );
    assert_eq!(chosen(&one, &wants("4")), "n: free guarded!");
    budget(&mut one, "a", "a", 1);
    assert_eq!(chosen(&one, &wants("2")), "n: guarded", "one may go");
    assert_eq!(chosen(&one, &wants("4")), "n: free guarded");
    let mut two = cluster(
        vec![four("n")],
        vec![
            app(cores("x", "n", "2", 2), "a"),
            app(cores("y", "n", "2", 1), "a"),
        ],
    );
    budget(&mut two, "a", "a", 1);
    assert_eq!(
        chosen(&two, &wants("4")),
        "n: x y!",
        "the budget is for one"
    );
}

#[test]
fn budgets_that_cover_nothing() {
    let labelled = pod("x").label("app", "a").build();
    let plain = pod("x").build();
    let budget = |selector, disrupted: &[&str]| Budget {
        namespace: "default".into(),
        name: "b".into(),
        selector,
        disruptions_allowed: 0,
        disrupted_pods: disrupted.iter().map(|name| ((*name).into(), NOW)).collect(),
    };
    let app = || Selector::all([Requirement::equals("app", "a")]);
    for (case, budget, pod, want) in [
        ("matches", budget(app(), &[]), &labelled, true),
        ("already counted", budget(app(), &["x"]), &labelled, false),
        (
            "an empty selector",
            budget(Selector::EVERYTHING, &[]),
            &labelled,
            false,
        ),
        (
            "no selector",
            budget(Selector::NOTHING, &[]),
            &labelled,
            false,
        ),
        ("no labels", budget(app(), &[]), &plain, false),
    ] {
        assert_eq!(covers(&budget, pod), want, "{case}");
    }
}

#[test]
fn the_node_that_hurts_least_is_taken() {
    for (case, pods, want) in [
        (
            "the lower top victim",
            vec![cores("a", "n1", "4", 5), cores("b", "n2", "4", 4)],
            "n2: b",
        ),
        (
            "the smaller sum",
            vec![
                cores("a", "n1", "2", 5),
                cores("b", "n1", "2", 5),
                cores("c", "n2", "4", 5),
            ],
            "n2: c",
        ),
        (
            "negative priorities count too",
            vec![
                cores("a", "n1", "2", -5),
                cores("b", "n1", "2", -5),
                cores("c", "n2", "4", -5),
            ],
            "n2: c",
        ),
        (
            "the one whose most important victim started last",
            vec![
                started(cores("a", "n1", "4", 5), 10),
                started(cores("b", "n2", "4", 5), 20),
            ],
            "n2: b",
        ),
        (
            "else the first",
            vec![
                started(cores("a", "n1", "4", 5), 10),
                started(cores("b", "n2", "4", 5), 10),
            ],
            "n1: a",
        ),
    ] {
        let cluster = cluster(vec![four("n1"), four("n2")], pods);
        assert_eq!(chosen(&cluster, &wants("4")), want, "{case}");
    }
    let mut guarded = cluster(
        vec![four("n1"), four("n2")],
        vec![
            cores("a", "n1", "4", 1).label("app", "a"),
            cores("b", "n2", "4", 9),
        ],
    );
    budget(&mut guarded, "a", "a", 0);
    assert_eq!(
        chosen(&guarded, &wants("4")),
        "n2: b",
        "budgets go before priorities"
    );
}

#[test]
fn nominated_pods_keep_their_room() {
    let mut cluster = cluster(vec![four("n")], vec![cores("low", "n", "2", 1)]);
    let nominee = pod("nominee").container("cpu=2").priority(200).build();
    cluster.nominate(nominee, "n".into()).unwrap();
    assert_eq!(chosen(&cluster, &wants("2")), "n: low");
    assert_eq!(
        search_for(&cluster, &wants("3")).0,
        "0/1 nodes are available: 1 Insufficient cpu."
    );
}

#[test]
fn messages_when_nothing_helps() {
    let tainted = four("tainted").taint("k", "v", "NoSchedule");
    let cluster = cluster(
        vec![tainted, four("high"), four("mixed"), four("higher")],
        vec![
            cores("h", "high", "3", 200),
            cores("m", "mixed", "2", 1),
            cores("n", "mixed", "2", 200),
            cores("o", "higher", "1", 100),
            cores("t", "tainted", "4", 1),
        ],
    );
    assert_eq!(
        search_for(&cluster, &wants("4")).0,
        "0/4 nodes are available: 1 Insufficient cpu, 1 Preemption is not helpful for scheduling, \
         2 No preemption victims found for incoming pod."
    );
}

#[test]
fn who_may_preempt() {
    let leaving = |pod: PodBuilder| pod.terminating().with(|pod| pod.preempted = true);
    let nominated = || wants("2").with(|pod| pod.nominated_node = Some("n".into()));
    let never = |pod: PodBuilder| pod.with(|pod| pod.preemption_policy = PreemptionPolicy::Never);
    let terminating = Err(Ineligible::VictimsTerminate);
    for (case, pod, other, status, want) in [
        (
            "by default",
            wants("2"),
            cores("a", "n", "4", 1),
            Status::Unschedulable,
            Ok(()),
        ),
        (
            "never",
            never(wants("2")),
            cores("a", "n", "4", 1),
            Status::Unschedulable,
            Err(Ineligible::PolicyNever),
        ),
        (
            "its victim is on its way out",
            nominated(),
            leaving(cores("a", "n", "4", 1)),
            Status::Unschedulable,
            terminating,
        ),
        (
            "somebody else's end",
            nominated(),
            cores("a", "n", "4", 1).terminating(),
            Status::Unschedulable,
            Ok(()),
        ),
        (
            "the node is of no use any more",
            nominated(),
            leaving(cores("a", "n", "4", 1)),
            Status::Unresolvable,
            Ok(()),
        ),
    ] {
        let cluster = cluster(vec![four("n")], vec![other]);
        let diagnosis = Diagnosis {
            nodes: 1,
            statuses: vec![crate::scheduling::evaluate::NodeStatus { slot: 0, status }],
            ..Diagnosis::default()
        };
        assert_eq!(eligible(&cluster, &pod.build(), &diagnosis), want, "{case}");
    }
}

/// The scratch buffers give the same answers as a question asked from scratch.
#[test]
fn trials_agree_with_plain_questions() {
    use crate::scheduling::evaluate::NodeChange;
    use crate::testing::spread;
    let app = |pod: PodBuilder| pod.label("app", "a");
    let mut cluster = cluster(
        vec![
            four("n1").label("zone", "a"),
            four("n2").label("zone", "b"),
            four("n3"),
        ],
        vec![
            app(cores("a", "n1", "2", 1)),
            app(cores("b", "n1", "1", 2)),
            app(cores("c", "n2", "1", 3)),
            cores("d", "n3", "4", 4),
        ],
    );
    cluster
        .nominate(
            app(pod("nominee").container("cpu=1").priority(500)).build(),
            "n1".into(),
        )
        .unwrap();
    let constraint = spread("zone", 1).app("a");
    let (profile, pod) = (profile(), app(wants("2").spread(constraint)).build());
    let scan = Scan::new(&cluster, &profile, &pod);
    let mut trial = Trial::new(&scan);
    for slot in 0..3 {
        let on: Vec<&Placed> = cluster.pods_on(slot).collect();
        for gone in 0..(1_usize << on.len()) {
            let removed: Vec<&Arc<Pod>> = (0..on.len())
                .filter(|i| gone >> i & 1 == 1)
                .map(|i| &on[i].pod)
                .collect();
            trial.reset_to_node(slot, &on);
            (0..on.len()).for_each(|pod| trial.remove(pod));
            let back = (0..on.len()).filter(|i| gone >> i & 1 == 0);
            back.for_each(|pod| trial.put_back(pod));
            let plain = scan.fits_if(
                slot,
                NodeChange {
                    added: &[],
                    removed: &removed,
                },
            );
            assert_eq!(trial.fits(), Ok(plain.is_ok()), "{slot} {removed:?}");
            let said = trial.verdict().map_err(|refusal| refusal.rejection(&scan));
            assert_eq!(said, plain, "{slot} {removed:?}");
        }
    }
}

#[test]
fn a_filter_that_breaks_ends_the_search_unless_another_node_helps() {
    let names = ["NodeResourcesFit", "NodeVolumeLimits"];
    let plugins = names.map(|name| Enabled::new(plugins::find(name).unwrap(), 1).unwrap());
    let profile = Profile::new("default-scheduler", plugins.to_vec());
    let search_on = |nodes: &[&str]| {
        let full = |name: &&str| cores(&format!("on-{name}"), name, "4", 1);
        let nodes_of_four = nodes.iter().map(|name| four(name)).collect();
        let mut cluster = cluster(nodes_of_four, nodes.iter().map(full).collect());
        let limits = CsiLimits {
            node: "broken".into(),
            ..CsiLimits::default()
        };
        cluster.apply(Update::from(limits)).unwrap();
        // No such id can be told to the driver, and drivers count only where there is a CSINode.
        let disk = VolumeSource::InTree {
            plugin: "kubernetes.io/aws-ebs".into(),
            id: "aws://nowhere".into(),
        };
        let pod = wants("1").volume(disk).build();
        let mut scan = Scan::new(&cluster, &profile, &pod);
        let diagnosis = diagnosis(&mut scan);
        search(&scan, &diagnosis, SearchScope::All, NOW)
    };
    let alone = search_on(&["broken"]);
    assert_eq!(
        alone.failure().as_deref(),
        Some(
            "running \"NodeVolumeLimits\" filter plugin: converting volume(v0) from inline to csi: failed to translate \
             Kubernetes ID to EBS Volume ID Invalid format for AWS volume (aws://nowhere)"
        )
    );
    let two = search_on(&["broken", "sound"]);
    assert_eq!((two.candidates.len(), two.failure()), (1, None));
}
