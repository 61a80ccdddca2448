//! Probes are called around every point that runs; rewrites change what its plugins see.

use super::extenders::{answer, kept};
use super::*;
use crate::model::{Node, Resource};
use crate::scheduling::hooks::Evaluations;
use crate::scheduling::hooks::{PointResult, Probe, Rewrite};

/// Records the calls.
#[derive(Default)]
pub(super) struct Watcher(Mutex<Vec<String>>);

impl Watcher {
    /// The calls since the last time, without QueueSort, whose number depends on the heap.
    fn take(&self) -> Vec<String> {
        let mut seen = std::mem::take(&mut *self.0.lock().unwrap());
        seen.retain(|line| !line.contains("QueueSort"));
        seen
    }
}

impl Probe for Watcher {
    fn points(&self) -> Points {
        Points::ALL
    }
    fn before(&self, point: Point, pod: &Pod) {
        let text = format!("{} >{point:?}", pod.name);
        self.0.lock().unwrap().push(text);
    }
    fn after(&self, point: Point, pod: &Pod, result: &PointResult) {
        let result = match result {
            PointResult::Success => String::new(),
            PointResult::Wait => " to wait".to_owned(),
            PointResult::Rejected(rejection) => format!(": {}", rejection.message()),
        };
        let text = format!("{} <{point:?}{result}", pod.name);
        self.0.lock().unwrap().push(text);
    }
}

fn watched(settings: Settings) -> (Bench, Arc<Watcher>) {
    let watcher = Arc::new(Watcher::default());
    let hooks = Hooks::default().with_probe(watcher.clone());
    (Bench::with(Settings { hooks, ..settings }), watcher)
}

#[test]
fn every_point_begins_and_ends_where_it_runs() {
    let (bench, watcher) = watched(Settings::default());
    let mut bench = bench.nodes(&["x", "y"]);
    bench.pod(&cores("a", "1").label("hold", "A").label("prepare", "A"));
    assert_eq!(watcher.take(), ["a >PreEnqueue", "a <PreEnqueue"]);
    bench.step();
    assert_eq!(
        watcher.take(),
        [
            "a >PreFilter",
            "a <PreFilter",
            "a >Filter",
            "a <Filter",
            "a >PreScore",
            "a <PreScore",
            "a >Score",
            "a <Score",
            "a >Reserve",
            "a <Reserve",
            "a >Permit",
            "a <Permit to wait",
        ]
    );
    bench.apply(Input::Permit {
        uid: "a".into(),
        plugin: "A".into(),
        verdict: PermitVerdict::Allow,
    });
    assert_eq!(watcher.take(), ["a >PreBind"]);
    bench.apply(Input::Prepared {
        uid: "a".into(),
        result: Ok(()),
    });
    assert_eq!(watcher.take(), ["a <PreBind", "a >Bind"]);
    assert!(bench.step().starts_with("prepare a"));
    assert!(bench.step().starts_with("bind a"));
    bench.bound("a", Ok(()));
    let bound = ["a <Bind", "a >PostBind", "a <PostBind"];
    assert_eq!(watcher.take(), bound);
    bench.pod(&cores("a", "1").on("x"));
    assert_eq!(watcher.take(), [""; 0], "it was reported already");
    bench.pod(&cores("b", "1"));
    assert!(bench.step().starts_with("bind b"));
    watcher.take();
    bench.pod(&cores("b", "1").on("y"));
    assert_eq!(watcher.take()[0], "b <Bind", "seen before it was reported");
}

#[test]
fn queue_order_is_a_point_too() {
    let (mut bench, watcher) = watched(Settings::default());
    bench.pod(&pod("a"));
    bench.pod(&pod("b"));
    let seen = watcher.0.lock().unwrap();
    let sorted: Vec<&String> = seen.iter().filter(|line| line.contains("Sort")).collect();
    assert_eq!(
        sorted[..4],
        [
            "b >QueueSort",
            "a >QueueSort",
            "a <QueueSort",
            "b <QueueSort"
        ]
    );
}

#[test]
fn a_single_node_is_not_scored() {
    let (bench, watcher) = watched(Settings::default());
    let mut bench = bench.nodes(&["x"]);
    bench.pod(&cores("a", "1"));
    bench.step();
    let seen = watcher.take();
    assert!(!seen.iter().any(|line| line.contains("Score")), "{seen:?}");
}

#[test]
fn a_point_that_fails_ends_with_the_message() {
    let (bench, watcher) = watched(Settings::default());
    let mut bench = bench.nodes(&["x"]);
    bench.pod(&cores("big", "5"));
    bench.step();
    let words = "0/1 nodes are available: 1 Insufficient cpu.";
    let nothing = "0/1 nodes are available: 1 Preemption is not helpful for scheduling.";
    assert_eq!(
        watcher.take()[2..],
        [
            "big >PreFilter".to_owned(),
            "big <PreFilter".into(),
            "big >Filter".into(),
            format!("big <Filter: {words}"),
            "big >PostFilter".into(),
            format!("big <PostFilter: preemption: {nothing}"),
        ]
    );
    for (label, last) in [
        ("refuse", "a <Reserve: not here"),
        ("prepare", "a <PreBind: the pod is gone"),
        ("none", "a <Bind: the pod is gone"),
    ] {
        bench.pod(&cores("a", "1").label(label, "A"));
        bench.step();
        bench.gone("a");
        let seen = watcher.take();
        let about_it = seen.iter().rfind(|line| line.starts_with("a "));
        assert_eq!(about_it.unwrap(), last);
    }
}

#[test]
fn rounds_with_extenders_end_what_they_begin() {
    let filter = Extender {
        filters: true,
        ..Extender::default()
    };
    let (bench, watcher) = watched(Settings {
        extenders: vec![filter],
        ..Settings::default()
    });
    let mut bench = bench.nodes(&["x", "y"]);
    bench.pod(&pod("a"));
    watcher.take();
    assert_eq!(bench.step(), "ask a: filter x y");
    let filters = ["a >PreFilter", "a <PreFilter", "a >Filter", "a <Filter"];
    assert_eq!(watcher.take(), filters);
    answer(&mut bench, 0, kept(&["x", "y"], &[]));
    assert_eq!(bench.step(), "bind a x");
    assert_eq!(
        watcher.take()[..6],
        [&filters[..], &["a >PreScore", "a <PreScore"]].concat()
    );
}

/// Records the evaluations.
#[derive(Default)]
struct Census(Mutex<Vec<(Point, Evaluations)>>);

impl Probe for Census {
    fn evaluated(&self, point: Point, _: &Pod, plugins: &[(usize, usize)]) {
        self.0.lock().unwrap().push((point, plugins.to_vec()));
    }
}

#[test]
fn plugins_that_skip_are_not_counted() {
    let census = Arc::new(Census::default());
    let settings = Settings {
        hooks: Hooks::default().with_probe(census.clone()),
        ..Settings::default()
    };
    let native = |name: &str| Enabled::new(plugins::find(name).unwrap(), 1).unwrap();
    let plugins = vec![
        enabled("Path", &[Point::QueueSort, Point::Bind], Path),
        native("NodeName"),
        native("TaintToleration"),
        native("NodeAffinity"),
        native("NodeResourcesFit"),
        native("ImageLocality"),
        native("DefaultPreemption"),
    ];
    let (name, taint, affinity, fit, image, preemption) = (1, 2, 3, 4, 5, 6);
    let mut bench = Bench {
        scheduler: Scheduler::new(vec![Profile::new("default-scheduler", plugins)], settings)
            .unwrap(),
        now: Timestamp::from_secs(1_000),
        calls: Arc::default(),
    }
    .nodes(&["x", "y"]);
    bench.node(node("z").allocatable("cpu=4").taint("k", "v", "NoSchedule"));
    let mut asked = |pod: &PodBuilder| {
        bench.pod(pod);
        bench.step();
        std::mem::take(&mut *census.0.lock().unwrap())
    };
    // A plugin that is not enabled at the first of two points runs at the second.
    let filters = |nodes| (Point::Filter, vec![(name, 3), (taint, 3), (fit, nodes)]);
    let scores = [
        (Point::PreScore, vec![(taint, 1), (fit, 1)]),
        (Point::Score, vec![(taint, 2), (fit, 2), (image, 2)]),
    ];
    let first = (Point::PreFilter, vec![(fit, 1)]);
    let idle = (Point::PreBind, vec![]);
    assert_eq!(
        asked(&cores("a", "1")),
        [&[first.clone(), filters(2)], &scores[..], &[idle]].concat()
    );
    // No other plugin evaluates a rejected node, and a single node is not scored.
    let picky = asked(&cores("b", "1").node_selector("name", "x"));
    assert_eq!(picky[0], (Point::PreFilter, vec![(affinity, 1), (fit, 1)]));
    assert_eq!(picky[1].1, [(name, 3), (taint, 3), (affinity, 2), (fit, 0)]);
    let big = asked(&cores("big", "9"));
    let room = (Point::PostFilter, vec![(preemption, 1)]);
    assert_eq!(big, [first, filters(2), room]);
}

/// A probe changes no decision.
#[test]
fn watching_changes_nothing() {
    let steps = |mut bench: Bench| {
        bench.node(node("x").allocatable("cpu=4"));
        bench.node(node("y").allocatable("cpu=4").taint("k", "v", "NoSchedule"));
        bench.pod(&cores("low", "3").on("x").priority(1));
        bench.pod(&cores("a", "1"));
        bench.pod(&cores("b", "3").priority(5));
        bench.pod(&cores("c", "9"));
        let steps: Vec<String> = (0..4).map(|_| bench.step()).collect();
        steps
    };
    let plain = steps(Bench::new());
    assert!(plain[0].starts_with("preempt b x: low"), "{plain:?}");
    assert_eq!(steps(watched(Settings::default()).0), plain);
}

/// For pods with a label, at some points: adds a toleration and shows nodes larger than they are.
pub(super) struct Rose(pub(super) Vec<Point>);

impl Rewrite for Rose {
    fn points(&self) -> Points {
        Points::of(&self.0)
    }
    fn pod(&self, point: Point, pod: &Arc<Pod>) -> Option<Arc<Pod>> {
        let tolerant = crate::testing::pod(&pod.name)
            .tolerates("k", "v", "")
            .build();
        let tolerations = tolerant.tolerations.clone();
        pod.labels()
            .get("rosy")
            .filter(|_| self.0.contains(&point))?;
        Some(Arc::new(Pod {
            tolerations,
            ..(**pod).clone()
        }))
    }
    fn rewrites_nodes(&self, point: Point, pod: &Pod) -> bool {
        pod.labels().get("rosy").is_some() && self.0.contains(&point)
    }
    fn node(&self, _: Point, _: &Pod, node: &Node) -> Option<Node> {
        let mut larger = node.clone();
        larger.allocatable.set(Resource::Cpu, 64_000);
        Some(larger)
    }
}

pub(super) fn rosy(points: Vec<Point>) -> Bench {
    let mut bench = Bench::with(Settings {
        hooks: Hooks::default().with_rewrite(Arc::new(Rose(points))),
        ..Settings::default()
    });
    bench.node(node("n").allocatable("cpu=4").taint("k", "v", "NoSchedule"));
    bench
}

#[test]
fn hooks_change_what_plugins_see_and_nothing_else() {
    let mut bench = rosy(vec![Point::PreFilter, Point::Filter]);
    bench.pod(&cores("plain", "1"));
    assert!(bench.step().starts_with("park plain"));
    bench.pod(&cores("a", "16").label("rosy", "yes"));
    let before = format!("{:?}", bench.scheduler.cluster().nodes());
    let Some(Outcome::Bind { pod, .. }) = bench.next() else {
        panic!("not bound")
    };
    assert!(pod.tolerations.is_empty(), "the real pod is bound");
    bench.gone("a");
    assert_eq!(format!("{:?}", bench.scheduler.cluster().nodes()), before);
}

#[test]
fn each_point_has_a_view_of_its_own() {
    // Only the filters matter for this pod, so a rewrite of other points changes nothing.
    for (points, fits) in [
        (vec![Point::Filter], true),
        (vec![Point::PreFilter], false),
        (vec![Point::Score], false),
    ] {
        let mut bench = rosy(points.clone());
        bench.pod(&cores("a", "16").label("rosy", "yes"));
        assert_eq!(bench.step() == "bind a n", fits, "{points:?}");
    }
    // Scores see the nodes that are shown to Score: there both are equal, so the first is taken.
    for (points, want) in [
        (vec![], "bind a large"),
        (vec![Point::Filter], "bind a large"),
        (vec![Point::Score], "bind a small"),
    ] {
        let mut bench = Bench::with(Settings {
            hooks: Hooks::default().with_rewrite(Arc::new(Rose(points))),
            ..Settings::default()
        });
        bench.node(node("small").allocatable("cpu=4 memory=4Gi"));
        bench.node(node("large").allocatable("cpu=8 memory=4Gi"));
        bench.pod(&cores("a", "2").label("rosy", "yes"));
        assert_eq!(bench.step(), want);
    }
}

#[test]
fn the_chosen_node_is_shown_to_later_points() {
    struct Label;
    impl Rewrite for Label {
        fn points(&self) -> Points {
            Points::of(&[Point::Permit])
        }
        fn rewrites_nodes(&self, _: Point, _: &Pod) -> bool {
            true
        }
        fn node(&self, _: Point, _: &Pod, node: &Node) -> Option<Node> {
            let mut other = node.clone();
            other.spec.unschedulable = true;
            Some(other)
        }
    }
    struct Picky(Arc<Mutex<Vec<(Point, bool)>>>);
    impl Plugin for Picky {
        fn prepare(&self, _: &Pod, _: &Catalog, _: &mut Plan) {}
        fn reserve(&self, _: &Pod, node: &NodeSpec, _: &mut Catalog) -> Result<(), Rejection> {
            self.0
                .lock()
                .unwrap()
                .push((Point::Reserve, node.unschedulable));
            Ok(())
        }
        fn permit(&self, _: &Pod, node: &NodeSpec, _: &Catalog) -> Result<Permit, Rejection> {
            self.0
                .lock()
                .unwrap()
                .push((Point::Permit, node.unschedulable));
            Ok(Permit::Go)
        }
        fn post_bind(&self, _: &Pod, node: &NodeSpec, _: &mut Catalog) {
            self.0
                .lock()
                .unwrap()
                .push((Point::PostBind, node.unschedulable));
        }
    }
    let seen = Arc::new(Mutex::new(Vec::new()));
    let points = [Point::Reserve, Point::Permit, Point::PostBind];
    let plugins = vec![
        enabled("Path", &[Point::QueueSort, Point::Bind], Path),
        enabled("Picky", &points, Picky(seen.clone())),
    ];
    let settings = Settings {
        hooks: Hooks::default().with_rewrite(Arc::new(Label)),
        ..Settings::default()
    };
    let profile = Profile::new("default-scheduler", plugins);
    let mut bench = Bench {
        scheduler: Scheduler::new(vec![profile], settings).unwrap(),
        now: Timestamp::from_secs(1_000),
        calls: Arc::default(),
    }
    .nodes(&["n"]);
    bench.pod(&pod("a"));
    bench.step();
    bench.bound("a", Ok(()));
    bench.bound("a", Ok(()));
    let want = [
        (Point::Reserve, false),
        (Point::Permit, true),
        (Point::PostBind, false),
    ];
    assert_eq!(*seen.lock().unwrap(), want, "PostBind once");
}

/// Shows reclaimed pods as ordinary ones.
struct Disguise;

impl Rewrite for Disguise {
    fn points(&self) -> Points {
        Points::of(&[Point::PostFilter])
    }
    fn pod(&self, _: Point, pod: &Arc<Pod>) -> Option<Arc<Pod>> {
        Some(Arc::new(Pod {
            level: crate::model::QosLevel::default(),
            ..(**pod).clone()
        }))
    }
}

#[test]
fn no_hook_lets_a_reclaimed_pod_evict_others() {
    let hooks = Hooks::default().with_rewrite(Arc::new(Disguise));
    let settings = Settings {
        hooks,
        ..Settings::default()
    };
    let mut bench = Bench::with(settings).nodes(&["x"]);
    bench.pod(&cores("online", "4").on("x"));
    bench.pod(&cores("a", "4").reclaimed().priority(9));
    let step = bench.step();
    assert!(
        step.starts_with("park a ") && step.ends_with("no candidate node for preemption"),
        "{step}"
    );
    // An ordinary pod does.
    bench.pod(&cores("b", "4").priority(9));
    assert_eq!(bench.step(), "preempt b x: online / ");
}
