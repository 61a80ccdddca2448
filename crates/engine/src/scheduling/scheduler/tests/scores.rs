//! Score tables of decisions.

use super::extenders::{answer, kept};
use super::hooks::Watcher;
use super::*;

/// All of it in one line, as `a on n, 2 of 2 by A B: n 186 = 100 86, m 150 = 100 50`; empty if there is nothing.
fn shown(bench: &mut Bench) -> String {
    let Some(scores) = bench.scheduler.take_scores() else {
        return String::new();
    };
    assert_eq!((scores.at, &*scores.namespace), (bench.now, "default"));
    let nodes = scores.nodes.iter().map(|node| {
        let each: Vec<String> = node.scores.iter().map(ToString::to_string).collect();
        format!("{} {} = {}", node.node, node.score, each.join(" "))
    });
    let nodes: Vec<String> = nodes.collect();
    let (name, node, plugins) = (&scores.name, &scores.node, scores.plugins.join(" "));
    let (top, all) = (scores.top, scores.feasible_nodes);
    format!(
        "{name} on {node}, {top} of {all} by {plugins}: {}",
        nodes.join(", ")
    )
}

fn shows(name: &str, cpu: &str, top: u16) -> PodBuilder {
    cores(name, cpu).with(|pod| pod.show_scores = Some(top))
}

/// Without a probe and with one.
fn benches() -> [Bench; 2] {
    let hooks = Hooks::default().with_probe(Arc::new(Watcher::default()));
    let watched = Settings {
        hooks,
        ..Settings::default()
    };
    [Settings::default(), watched].map(|settings| {
        let mut bench = Bench::with(settings);
        bench.node(node("small").allocatable("cpu=2 memory=4Gi"));
        bench.node(node("large").allocatable("cpu=4 memory=4Gi"));
        bench.node(node("equal").allocatable("cpu=4 memory=4Gi"));
        bench
    })
}

#[test]
fn tables_are_disabled_by_default() {
    for mut bench in benches() {
        bench.pod(&cores("a", "1"));
        assert_eq!(bench.step(), "bind a large");
        assert_eq!(shown(&mut bench), "");
    }
}

#[test]
fn the_best_nodes_come_first_and_the_chosen_one_before_its_equals() {
    for mut bench in benches() {
        bench.scheduler.show_scores(2);
        let by = "by TaintToleration NodeResourcesFit";
        bench.pod(&cores("a", "1"));
        assert_eq!(bench.step(), "bind a large");
        let want = format!("a on large, 2 of 3 {by}: large 185 = 100 85, equal 185 = 100 85");
        assert_eq!(shown(&mut bench), want);
        assert_eq!(shown(&mut bench), "", "once");
        bench.pod(&cores("b", "1"));
        assert_eq!(bench.step(), "bind b equal");
        let want = format!("b on equal, 2 of 3 {by}: equal 185 = 100 85, small 172 = 100 72");
        assert_eq!(shown(&mut bench), want);
        // The next of equal nodes in turn is chosen, which is not the first of them here.
        for name in ["c", "d"] {
            bench.pod(&cores(name, "1"));
            bench.step();
            let found = shown(&mut bench);
            let node = found.split([' ', ',']).nth(2).unwrap();
            assert!(found.contains(&format!("{by}: {node} ")), "{found}");
        }
        bench.scheduler.show_scores(0);
        bench.pod(&cores("e", "1"));
        bench.step();
        assert_eq!(shown(&mut bench), "");
    }
}

#[test]
fn a_pod_may_enable_or_disable_its_table() {
    for mut bench in benches() {
        bench.pod(&shows("a", "3", 1));
        bench.step();
        let want = "a on large, 1 of 2 by TaintToleration NodeResourcesFit: large 160 = 100 60";
        assert_eq!(shown(&mut bench), want);
        bench.scheduler.show_scores(1);
        bench.pod(&shows("b", "1", 0));
        bench.step();
        assert_eq!(shown(&mut bench), "");
    }
}

#[test]
fn a_single_node_and_a_nominated_one_have_scores_too() {
    for mut bench in benches() {
        bench.scheduler.show_scores(5);
        bench.pod(&cores("a", "4").on("large"));
        bench.pod(&cores("b", "3"));
        assert_eq!(bench.step(), "bind b equal");
        let want = "b on equal, 5 of 1 by TaintToleration NodeResourcesFit: equal 160 = 100 60";
        assert_eq!(shown(&mut bench), want);
        bench.pod(&cores("c", "1").with(|pod| pod.nominated_node = Some("small".into())));
        assert_eq!(bench.step(), "bind c small");
        let found = shown(&mut bench);
        assert!(found.starts_with("c on small, 5 of 1 by "), "{found}");
    }
}

#[test]
fn a_pod_that_fits_nowhere_has_no_scores() {
    for mut bench in benches() {
        bench.scheduler.show_scores(5);
        bench.pod(&cores("a", "9"));
        assert!(bench.step().starts_with("park a"));
        assert_eq!(shown(&mut bench), "");
    }
}

#[test]
fn scores_of_extenders_are_not_in_the_table() {
    let extender = || Extender {
        filters: true,
        weight: Some(1),
        ..Extender::default()
    };
    let hooks = Hooks::default().with_probe(Arc::new(Watcher::default()));
    for hooks in [Hooks::default(), hooks] {
        let settings = Settings {
            extenders: vec![extender()],
            hooks,
            ..Settings::default()
        };
        let mut bench = Bench::with(settings).nodes(&["x", "y", "z"]);
        bench.scheduler.show_scores(9);
        bench.pod(&pod("a"));
        assert!(bench.step().starts_with("ask a: filter"));
        answer(&mut bench, 0, kept(&["y", "z"], &[("x", "no")]));
        assert!(bench.step().starts_with("ask a: prioritize"));
        assert_eq!(shown(&mut bench), "", "nothing is decided yet");
        let said = crate::scheduling::extender::Response::Prioritize(vec![("z".into(), 7)]);
        answer(&mut bench, 0, Ok(said));
        assert_eq!(bench.step(), "bind a z");
        let found = shown(&mut bench);
        let want =
            "a on z, 9 of 2 by TaintToleration NodeResourcesFit: z 197 = 100 97, y 197 = 100 97";
        assert_eq!(found, want);
    }
}

#[test]
fn invalid_numbers_are_rejected() {
    for (text, want) in [
        ("10", Some(10)),
        (" 3\n", Some(3)),
        ("0", Some(0)),
        ("1000", Some(1_000)),
        ("1001", None),
        ("-1", None),
        ("ten", None),
        ("", None),
        ("4294967296", None),
    ] {
        assert_eq!(score_count(text).ok(), want, "{text:?}");
    }
}
