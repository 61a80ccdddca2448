use super::*;
use crate::cluster::Cluster;
use crate::cluster::kinds::{Key, Update};
use crate::model::Timestamp;
use crate::scheduling::plugins;
use crate::scheduling::profile::{Enabled, Profile};
use crate::scheduling::scheduler::{Input, Outcome, Scheduler, Settings};
use proptest::prelude::{ProptestConfig, any, prop, prop_assert_eq, proptest};
use proptest::strategy::Strategy as _;

use crate::testing::{Lab, NodeBuilder, PodBuilder, PolicyBuilder, node, pod, policy};

const FITS: &str = "ok";
const NO_UNIT: &str = "UU ResourcePolicy default/p: node is in no unit";

fn full(unit: &str, max_count: u32) -> String {
    format!("UU ResourcePolicy default/p: unit \"{unit}\" is full (maxCount {max_count})")
}

fn reserved(name: &str) -> NodeBuilder {
    node(name).label("kind", "reserved")
}

fn spot(name: &str) -> NodeBuilder {
    node(name).label("kind", "spot")
}

fn web(name: &str) -> PodBuilder {
    pod(name).label("app", "web")
}

/// Two reserved machines at most, then any number of spot machines.
fn two_units() -> PolicyBuilder {
    policy("p")
        .selects("app", "web")
        .unit("reserved", 5, Some(2), "kind=reserved")
        .unit("spot", 1, None, "kind=spot")
}

fn lab(policy: PolicyBuilder) -> Lab {
    Lab::new(ResourcePolicyPlugin)
        .node(reserved("r1"))
        .node(reserved("r2"))
        .node(spot("s"))
        .node(node("out"))
        .object(policy)
}

#[test]
fn full_units_and_nodes_outside() {
    let on = |lab: Lab, pods: &[(&str, &str)]| {
        let pods = pods.iter();
        pods.fold(lab, |lab, (name, node)| lab.placed(web(name).on(node)))
    };
    let full = &*full("reserved", 2);
    for (case, lab, pod, want) in [
        (
            "an empty cluster",
            lab(two_units()),
            web("x"),
            [FITS, FITS, FITS, NO_UNIT],
        ),
        (
            "outside is allowed",
            lab(two_units().prefers()),
            web("x"),
            [FITS; 4],
        ),
        ("not of the policy", lab(two_units()), pod("x"), [FITS; 4]),
        (
            "of another namespace",
            lab(two_units()),
            web("x").namespace("other"),
            [FITS; 4],
        ),
        (
            "one on a unit",
            on(lab(two_units()), &[("a", "r1")]),
            web("x"),
            [FITS, FITS, FITS, NO_UNIT],
        ),
        (
            "a full unit is full on all its nodes",
            on(lab(two_units()), &[("a", "r1"), ("b", "r1")]),
            web("x"),
            [full, full, FITS, NO_UNIT],
        ),
        (
            "pods that do not match do not count",
            lab(two_units())
                .placed(pod("a").on("r1"))
                .placed(web("b").namespace("other").on("r1"))
                .placed(web("c").on("r2")),
            web("x"),
            [FITS, FITS, FITS, NO_UNIT],
        ),
    ] {
        assert_eq!(lab.filter(&pod), want, "{case}");
    }
}

#[test]
fn caps_of_zero_overlapping_units_and_names() {
    let inner = || {
        policy("p")
            .unit("all", 1, Some(3), "")
            .unit("inner", 9, Some(1), "kind=reserved")
    };
    let two = || lab(inner()).placed(web("a").on("r1"));
    assert_eq!(
        two().filter(&web("x")),
        [full("inner", 1), full("inner", 1), FITS.into(), FITS.into()],
        "the inner unit is full"
    );
    let three = two().placed(web("b").on("s")).placed(web("c").on("out"));
    let all = full("all", 3);
    assert_eq!(
        three.filter(&web("x")),
        vec![all; 4],
        "the first full unit in the list"
    );
    let closed = policy("p")
        .unit("reserved", 5, Some(0), "kind=reserved")
        .unit("rest", 0, None, "");
    let zero = &*full("reserved", 0);
    assert_eq!(
        lab(closed).filter(&web("x")),
        [zero, zero, FITS, FITS],
        "closed"
    );
}

#[test]
fn groups() {
    let keyed = || {
        let policy = policy("p").selects("app", "web").key("hash");
        lab(policy.unit("reserved", 5, Some(1), "kind=reserved"))
            .placed(web("old").label("hash", "1").on("r1"))
    };
    for (case, pod, fits) in [
        ("the same revision", web("x").label("hash", "1"), false),
        (
            "another revision has a cap of its own",
            web("x").label("hash", "2"),
            true,
        ),
        ("without the label all pods are counted", web("x"), false),
    ] {
        assert_eq!(keyed().filter(&pod)[0] == FITS, fits, "{case}");
    }
    let unkeyed = Lab::new(ResourcePolicyPlugin)
        .node(reserved("r1"))
        .object(policy("p").key("hash").unit("u", 0, Some(1), ""))
        .placed(pod("old").on("r1"));
    assert_eq!(
        unkeyed.filter(&pod("x").label("hash", "1")),
        [FITS],
        "a pod without the label is in no revision"
    );
}

#[test]
fn terminating_nominated_and_removed_pods() {
    let one = || policy("p").unit("u", 0, Some(1), "kind=reserved");
    let dying = || pod("dying").terminating().on("r1");
    let counted = lab(one()).placed(dying());
    assert_eq!(
        counted.filter(&pod("x"))[0],
        full("u", 1),
        "counts by default"
    );
    let ignored = lab(one().ignores_terminating()).placed(dying());
    assert_eq!(ignored.filter(&pod("x"))[0], FITS, "ignored");
    let nominated = lab(one()).nominated(pod("first").priority(10), "r1");
    let found = nominated.filter(&pod("x"));
    assert_eq!(
        (&*found[0], &*found[1]),
        (&*full("u", 1), FITS),
        "a slot is held on the nominated node only"
    );
    let taken = lab(one()).placed(pod("a").on("r1"));
    assert_eq!(
        taken.filter_without(&pod("x"), "r1", &["a"]),
        FITS,
        "preemption sees the slot"
    );
    assert_eq!(taken.filter_without(&pod("x"), "r1", &[]), full("u", 1));
}

#[test]
fn several_policies_and_policies_without_effect() {
    let both = lab(two_units()).object(policy("b").selects("app", "web").unit("u", 0, None, ""));
    let text = "UU multiple resourcePolicies match pod: b, p";
    assert_eq!(both.filter(&web("x")), [text; 4]);
    assert_eq!(both.scores(&pod("x")), None, "no policy matches");
    let mut broken = two_units().build();
    broken.spec = Err("spec.units is empty".into());
    let broken = lab(two_units()).object(Update::Set(broken.into()));
    assert_eq!(
        broken.filter(&web("x")),
        [FITS; 4],
        "an invalid policy has no effect"
    );
    assert_eq!(broken.scores(&web("x")), None);
}

#[test]
fn scores_are_those_of_the_proposal() {
    // The nodes in order: their priorities, `None` outside, raw and normalised scores.
    for (priorities, want) in [
        ([Some(5), Some(4), None], vec![(100, 100), (80, 80), (0, 0)]),
        ([Some(2), Some(1), None], vec![(40, 100), (20, 50), (0, 0)]),
        (
            [Some(10), Some(9), Some(1)],
            vec![(200, 100), (180, 90), (20, 10)],
        ),
        (
            [Some(1000), Some(996), Some(995)],
            vec![(20_000, 100), (19_920, 99), (19_900, 99)],
        ),
        ([Some(0), Some(0), None], vec![(0, 0), (0, 0), (0, 0)]),
    ] {
        let mut policy = policy("p").prefers();
        let mut lab = Lab::new(ResourcePolicyPlugin);
        for (index, priority) in priorities.iter().enumerate() {
            let index = index.to_string();
            lab = lab.node(node(&index).label("n", &index));
            if let Some(priority) = priority {
                policy = policy.unit(&format!("u{index}"), *priority, None, &format!("n={index}"));
            }
        }
        assert_eq!(
            lab.object(policy).scores(&pod("x")),
            Some(want),
            "{priorities:?}"
        );
    }
}

#[test]
fn annotations_name_the_unit_and_its_cost() {
    let cost = |text: &str, mark: &str| {
        vec![
            (DELETION_COST, text.to_owned()),
            (POLICY_UNIT, mark.to_owned()),
        ]
    };
    let overlapping = two_units().prefers().unit("best", 9, None, "size=big");
    for (case, policies, pod, on, want) in [
        (
            "in a unit",
            vec![two_units()],
            web("x"),
            reserved("r"),
            cost("6", "p/reserved=6"),
        ),
        (
            "outside",
            vec![two_units().prefers()],
            web("x"),
            node("out"),
            cost("0", "p/-=0"),
        ),
        (
            "in two units",
            vec![overlapping],
            web("x"),
            spot("s").label("size", "big"),
            cost("10", "p/best=10"),
        ),
        (
            "no policy",
            vec![two_units()],
            pod("x"),
            reserved("r"),
            vec![],
        ),
        (
            "several",
            vec![two_units(), policy("b").unit("u", 0, None, "")],
            web("x"),
            reserved("r"),
            vec![],
        ),
        (
            "a cost of its own",
            vec![two_units()],
            web("x").with(|pod| pod.has_deletion_cost = true),
            reserved("r"),
            vec![],
        ),
    ] {
        let lab = policies
            .into_iter()
            .fold(Lab::new(ResourcePolicyPlugin), Lab::object);
        let found =
            ResourcePolicyPlugin.annotations(&pod.build(), &on.build().spec, lab.cluster.catalog());
        assert_eq!(found, want, "{case}");
    }
}

#[test]
fn pods_that_leave_the_count_help() {
    let keyed = || two_units().key("hash");
    let of = |name: &str, hash: &str| web(name).label("hash", hash).on("r1");
    let lab = Lab::new(ResourcePolicyPlugin).object(keyed());
    let waits = web("x").label("hash", "1");
    for (case, old, new, want) in [
        ("deleted", Some(of("a", "1")), None, true),
        (
            "deleted, of another revision",
            Some(of("a", "2")),
            None,
            false,
        ),
        (
            "deleted, of another namespace",
            Some(of("a", "1").namespace("other")),
            None,
            false,
        ),
        (
            "deleted, not of the policy",
            Some(pod("a").label("hash", "1").on("r1")),
            None,
            false,
        ),
        (
            "relabelled out of the group",
            Some(of("a", "1")),
            Some(of("a", "2")),
            true,
        ),
        (
            "relabelled out of the policy",
            Some(of("a", "1")),
            Some(of("a", "1").label("app", "db")),
            true,
        ),
        (
            "relabelled into the group",
            Some(of("a", "2")),
            Some(of("a", "1")),
            false,
        ),
        (
            "another label",
            Some(of("a", "1")),
            Some(of("a", "1").label("b", "c")),
            false,
        ),
        ("bound", None, Some(of("a", "1")), false),
        (
            "terminating, and counted",
            Some(of("a", "1")),
            Some(of("a", "1").terminating()),
            false,
        ),
        (
            "another pod that waits",
            Some(web("b").label("hash", "1")),
            None,
            false,
        ),
        (
            "its own labels",
            Some(waits.clone()),
            Some(waits.clone().label("hash", "2")),
            true,
        ),
        (
            "its own tolerations",
            Some(waits.clone()),
            Some(waits.clone().tolerates("k", "v", "")),
            false,
        ),
    ] {
        assert_eq!(lab.helps_pod(&waits, old, new), want, "{case}");
    }
    let ignoring = Lab::new(ResourcePolicyPlugin).object(keyed().ignores_terminating());
    let dying = of("a", "1").terminating();
    assert!(
        ignoring.helps_pod(&waits, Some(of("a", "1")), Some(dying.clone())),
        "terminating, and ignored"
    );
    assert!(
        !ignoring.helps_pod(&waits, Some(dying), None),
        "it did not count"
    );
    let two = lab.object(policy("b").unit("u", 0, None, ""));
    assert!(
        !two.helps_pod(&waits, Some(of("a", "1")), None),
        "two policies match"
    );
}

#[test]
fn nodes_whose_units_change_help() {
    let lab = Lab::new(ResourcePolicyPlugin).object(two_units());
    for (case, old, new, want) in [
        ("into a unit", Some(node("n")), Some(spot("n")), true),
        ("out of a unit", Some(spot("n")), Some(node("n")), true),
        (
            "from one to another",
            Some(reserved("n")),
            Some(spot("n")),
            true,
        ),
        (
            "another label",
            Some(spot("n")),
            Some(spot("n").label("a", "b")),
            false,
        ),
        ("a new node of a unit", None, Some(spot("n")), true),
        ("a new node outside", None, Some(node("n")), false),
        (
            "a node of a capped unit goes",
            Some(reserved("n")),
            None,
            true,
        ),
        ("a node of another unit goes", Some(spot("n")), None, false),
    ] {
        assert_eq!(lab.helps_node(&web("x"), old, new), want, "{case}");
    }
    let prefers = Lab::new(ResourcePolicyPlugin).object(two_units().prefers());
    assert!(
        prefers.helps_node(&web("x"), None, Some(node("n"))),
        "a new node outside"
    );
}

#[test]
fn policies_whose_spec_changes_help() {
    let lab = Lab::new(ResourcePolicyPlugin);
    let other = || policy("p").selects("app", "db").unit("u", 0, None, "");
    for (case, old, new, want) in [
        ("new", None, two_units(), true),
        ("changed", Some(two_units()), two_units().prefers(), true),
        ("no longer about the pod", Some(two_units()), other(), true),
        ("now about the pod", Some(other()), two_units(), true),
        ("only its status", Some(two_units()), two_units(), false),
        ("never about the pod", None, other(), false),
        (
            "of another namespace",
            None,
            two_units().namespace("other"),
            false,
        ),
    ] {
        assert_eq!(lab.helps_object(&web("x"), old, new), want, "{case}");
    }
    let mut cluster = Cluster::new();
    cluster.apply(two_units().into()).unwrap();
    let gone = Update::Delete(Kind::ResourcePolicy, Key::new("default", "p"));
    let events = cluster.apply(gone).unwrap();
    assert!(
        events
            .iter()
            .any(|event| lab.helps(&web("x").build(), event)),
        "deleted"
    );
}

/// The plugin without its tier: a plain scorer.
struct Untiered;

impl Plugin for Untiered {
    fn prepare(&self, pod: &Pod, catalog: &Catalog, plan: &mut Plan) {
        ResourcePolicyPlugin.prepare(pod, catalog, plan);
        plan.plugins
            .iter_mut()
            .for_each(|plugin| plugin.tiers.clear());
    }
}

/// The default plugins and this one, the last, with this weight.
fn profile(plugin: Arc<dyn Plugin>, weight: i64) -> Profile {
    let default = plugins::DEFAULT.iter();
    let mut enabled: Vec<Enabled> = default
        .map(|(name, weight)| Enabled::new(plugins::find(name).unwrap(), (*weight).max(1)).unwrap())
        .collect();
    enabled.push(Enabled {
        name: ResourcePolicyPlugin::NAME,
        points: ResourcePolicyPlugin::POINTS,
        plugin,
        weight,
    });
    Profile::new("default-scheduler", enabled)
}

#[derive(Debug, Clone)]
struct RandomNode {
    cpu: u32,
    kind: usize,
    avoided: bool,
    zone: usize,
}

/// The nodes that the pods get, one by one.
fn placements(
    profile: Profile,
    nodes: &[RandomNode],
    policy: &PolicyBuilder,
    cores: &[u32],
) -> Vec<String> {
    let now = Timestamp::from_secs(1_000);
    let mut scheduler = Scheduler::new(vec![profile], Settings::default()).unwrap();
    let mut apply = |input| scheduler.apply(input, now).unwrap();
    for (index, random) in nodes.iter().enumerate() {
        let mut built = node(&format!("n{index}"))
            .allocatable(&format!("cpu={} memory=16Gi", random.cpu))
            .label("kind", &random.kind.to_string())
            .label("topology.kubernetes.io/zone", &random.zone.to_string());
        if random.avoided {
            built = built.taint("k", "v", "PreferNoSchedule");
        }
        apply(Input::Object(built.build().into()));
    }
    apply(Input::Object(policy.clone().into()));
    for (index, cores) in cores.iter().enumerate() {
        let built = pod(&format!("p{index}")).container(&format!("cpu={cores} memory=1Gi"));
        apply(Input::Pod(built.build()));
    }
    let mut placements = Vec::new();
    while let Some(outcome) = scheduler.schedule_next(now) {
        placements.push(match outcome {
            Outcome::Bind { pod, node, .. } => format!("{} {node}", pod.name),
            Outcome::Park(failure) => format!("{}: {}", failure.pod.name, failure.message),
            other => panic!("{other:?}"),
        });
    }
    placements
}

fn random_node() -> impl proptest::strategy::Strategy<Value = RandomNode> {
    (1..9_u32, 0..4_usize, any::<bool>(), 0..2_usize).prop_map(|(cpu, kind, avoided, zone)| {
        RandomNode {
            cpu,
            kind,
            avoided,
            zone,
        }
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    /// Priorities whose normalised scores differ: then the tier is the same as a weight above all others together.
    #[test]
    fn a_tier_equals_a_weight_above_all_others(
        nodes in prop::collection::vec(random_node(), 2..8),
        units in prop::collection::vec((1..11_u16, prop::option::of(1..4_u32), 0..3_usize), 1..4),
        prefers in any::<bool>(),
        cores in prop::collection::vec(1..3_u32, 1..10),
        weight in 1..100_i64,
    ) {
        let mut policy = policy("p");
        policy = if prefers { policy.prefers() } else { policy };
        for (index, (priority, max_count, kind)) in units.iter().enumerate() {
            policy = policy.unit(&index.to_string(), *priority, *max_count, &format!("kind={kind}"));
        }
        let tiered = profile(Arc::new(ResourcePolicyPlugin), weight);
        let weighted = profile(Arc::new(Untiered), 100_000);
        prop_assert_eq!(
            placements(tiered, &nodes, &policy, &cores),
            placements(weighted, &nodes, &policy, &cores)
        );
    }
}
