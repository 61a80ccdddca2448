//! Lays the board out as lines for a window of any size. `terminal` prints them.

use std::{borrow::Cow, fmt::Write as _, time::Duration};

use super::board::{Board, NodeView, TIERS};
use crate::output::count;

/// The parts that do not change while the cluster is up.
pub(super) struct Frame {
    /// `tidepool 0.1.0: ...`
    pub(super) title: String,
    /// `export KUBECONFIG=...`, which every window shows.
    pub(super) export: String,
    /// More commands to run in another terminal.
    pub(super) commands: Vec<String>,
    /// Where the score tables are, if they are enabled.
    pub(super) scores: Option<String>,
    /// The schedulers of this process.
    pub(super) schedulers: Vec<String>,
    /// The name of this program, for more commands.
    pub(super) program: String,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Size {
    pub(super) columns: usize,
    pub(super) rows: usize,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Look {
    Plain,
    Heading,
    Faint,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) struct Row {
    pub(super) text: String,
    pub(super) look: Look,
}

/// Most rows for waiting pods and for the log.
const MAX_WAITING: usize = 6;
const MAX_LOGGED: usize = 3;
/// With fewer changes the heading is left out.
const MIN_CHANGES: usize = 3;
/// A window with fewer rows shows no commands.
const MIN_ROWS: usize = 10;
/// Rows that the reminder leaves for the rest.
const MIN_OTHERS: usize = 6;
const STOP: &str = "q or Ctrl-C stops everything";

/// The lines of a window: never more or wider than it.
pub(super) fn draw(
    board: &Board,
    frame: &Frame,
    logged: &[String],
    uptime: Duration,
    size: Size,
) -> Vec<Row> {
    let reminder = match size.rows >= MIN_ROWS {
        true => reminder(frame, size),
        false => Vec::new(),
    };
    let mut page = Page::new(Size {
        rows: size.rows - reminder.len(),
        ..size
    });
    let nodes = board.nodes();
    add_sums(&mut page, board, frame, &nodes, uptime);
    if let Some(scores) = &frame.scores {
        page.add(Look::Plain, scores.clone());
    }
    // A score table has several lines, and a place of its own.
    let logged = logged.iter().filter(|line| !line.contains('\n'));
    let logged: Vec<&String> = logged.collect();
    for line in logged.iter().rev().take(MAX_LOGGED).rev() {
        page.add(Look::Plain, (*line).clone());
    }
    let waiting = board.waiting();
    let commands = commands(frame, waiting.first().map(|(pod, _)| *pod), size);
    // Nodes come first, but leave rows for pods. The commands come last, if rows are left.
    let others = 2 + waiting.len().min(MAX_WAITING) + 2 + MIN_CHANGES;
    let most = page.left().saturating_sub(others).clamp(3, 16);
    add_nodes(&mut page, &nodes, most);
    add_waiting(&mut page, &waiting, MAX_WAITING);
    page.size = size;
    let with_commands = page.left() > commands.len() + 3 + MIN_CHANGES;
    let (last, above) = if with_commands {
        (commands, 1)
    } else {
        (reminder, 0)
    };
    let rows = page.left() - last.len() - above;
    add_changes(&mut page, board, rows);
    if !last.is_empty() {
        while page.left() > last.len() {
            page.add(Look::Plain, String::new());
        }
    }
    for line in last {
        page.add(Look::Faint, line);
    }
    page.lines
}

/// Lines up to a size.
pub(super) struct Page {
    pub(super) lines: Vec<Row>,
    size: Size,
}

impl Page {
    pub(super) fn new(size: Size) -> Self {
        Self {
            lines: Vec::new(),
            size,
        }
    }

    pub(super) fn left(&self) -> usize {
        self.size.rows.saturating_sub(self.lines.len())
    }

    pub(super) fn add(&mut self, look: Look, text: String) {
        if self.left() > 0 {
            let text = fit(&text, self.size.columns);
            self.lines.push(Row { text, look });
        }
    }

    fn section(&mut self, heading: &str) {
        self.add(Look::Plain, String::new());
        self.add(Look::Heading, heading.to_owned());
    }
}

/// The text in at most so many columns. Control characters become spaces: messages may come from other programs.
fn fit(text: &str, columns: usize) -> String {
    let mut fitted: String = text
        .chars()
        .map(|c| if c.is_control() { ' ' } else { c })
        .take(columns)
        .collect();
    if text.chars().nth(columns).is_some() {
        fitted.pop();
        if columns > 0 {
            fitted.push('…');
        }
    }
    fitted
}

/// The text in lines of so many columns. Nothing of it is left out.
fn wrap(text: &str, columns: usize) -> Vec<String> {
    let letters: Vec<char> = text.chars().collect();
    let lines = letters.chunks(columns.max(1));
    lines.map(|line| line.iter().collect()).collect()
}

/// How to connect and to stop, for windows that show no other commands. The path is whole if the window has rows for it.
fn reminder(frame: &Frame, size: Size) -> Vec<String> {
    let one = format!("{STOP}; {}", frame.export);
    if one.chars().count() <= size.columns {
        return vec![one];
    }
    let mut lines = wrap(&frame.export, size.columns);
    lines.push(format!("{STOP}; arrow keys scroll"));
    match lines.len() + MIN_OTHERS <= size.rows {
        true => lines,
        false => vec![one],
    }
}

/// The title and the sums.
pub(super) fn add_sums(
    page: &mut Page,
    board: &Board,
    frame: &Frame,
    nodes: &[NodeView],
    uptime: Duration,
) {
    let title = format!("{}, {}", frame.title, count(nodes.len(), "node"));
    page.add(Look::Heading, title);
    page.add(Look::Plain, pods_line(board, uptime));
    page.add(Look::Plain, cpu_line(nodes));
    if let Some(line) = tier_line(nodes) {
        page.add(Look::Plain, line);
    }
}

fn pods_line(board: &Board, uptime: Duration) -> String {
    let counts = board.counts();
    let mut line = format!("pods: {} running", counts.running);
    for (count, word) in [
        (counts.starting, "starting"),
        (counts.waiting, "waiting"),
        (counts.foreign, "without a scheduler"),
        (counts.leaving, "leaving"),
        (counts.ended, "ended"),
    ] {
        if count > 0 {
            let _ = write!(line, ", {count} {word}");
        }
    }
    let uptime = humantime::format_duration(Duration::from_secs(uptime.as_secs()));
    let _ = write!(line, "; {} placed in {uptime}", board.placed());
    line
}

/// Over all nodes. Amounts can be any numbers.
fn sum(nodes: &[NodeView], of: impl Fn(&NodeView) -> i64) -> i64 {
    nodes.iter().map(of).fold(0, i64::saturating_add)
}

fn cpu_line(nodes: &[NodeView]) -> String {
    let (all, asked) = (
        sum(nodes, |it| it.allocatable.cpu),
        sum(nodes, |it| it.asked.cpu),
    );
    let used = sum(nodes, |it| it.used);
    let share = |part: i64| 100 * i128::from(part) / i128::from(all.max(1));
    format!(
        "cpu: {} cores, {} requested ({}%), {} used ({}%)",
        cores(all),
        cores(asked),
        share(asked),
        cores(used),
        share(used)
    )
}

/// What the nodes lend to the tiers; none if they lend nothing.
fn tier_line(nodes: &[NodeView]) -> Option<String> {
    let tiers = TIERS.into_iter().enumerate().map(|(index, tier)| {
        let lent = sum(nodes, |it| it.lent[index]);
        let asked = sum(nodes, |it| it.borrowed[index]);
        (tier, lent, asked)
    });
    let tiers: Vec<_> = tiers.filter(|(_, lent, _)| *lent > 0).collect();
    let texts = tiers.iter().map(|(tier, lent, asked)| {
        format!("{tier} {} cores, {} requested", cores(*lent), cores(*asked))
    });
    let text = texts.collect::<Vec<_>>().join("; ");
    (!tiers.is_empty()).then(|| format!("lent: {text}"))
}

fn cores(milli: i64) -> String {
    format!("{:.1}", milli as f64 / 1000.0)
}

pub(super) fn add_nodes(page: &mut Page, nodes: &[NodeView], most: usize) {
    let name = nodes.iter().map(|it| it.name.len()).max().unwrap_or(0);
    let name = name.clamp(4, 30);
    // Wide enough to compare nodes at a glance, and no wider.
    let bar_width = page.size.columns.saturating_sub(name + 48).clamp(8, 40);
    let heading = format!(
        "{:name$}  {:8}  {:>4}  {:>11}  {:bar_width$}  {:>9}",
        "NODE", "ZONE", "PODS", "CPU", "█ used ▒ requested", "MEMORY"
    );
    page.section(&heading);
    let shown = if nodes.len() > most { most - 1 } else { most };
    for node in nodes.iter().take(shown) {
        let cpu = format!("{}/{}", cores(node.asked.cpu), cores(node.allocatable.cpu));
        let gib = |bytes: i64| bytes >> 30;
        let memory = format!(
            "{}/{}Gi",
            gib(node.asked.memory),
            gib(node.allocatable.memory)
        );
        let bar = bar(node.used, node.asked.cpu, node.allocatable.cpu, bar_width);
        let line = format!(
            "{:name$}  {:8}  {:>4}  {cpu:>11}  {bar}  {memory:>9}  {}",
            fit(node.name, name),
            fit(node.zone, 8),
            node.pods,
            node.trouble
        );
        page.add(Look::Plain, line.trim_end().to_owned());
    }
    if nodes.len() > shown {
        let more = format!("... and {}", count(nodes.len() - shown, "more node"));
        page.add(Look::Faint, more);
    }
}

/// Used, requested but unused, and free.
fn bar(used: i64, asked: i64, all: i64, width: usize) -> String {
    let cells = |part: i64| {
        let cells = part.saturating_mul(width as i64) / all.max(1);
        usize::try_from(cells).unwrap_or(0).min(width)
    };
    let (used, asked) = (cells(used), cells(asked));
    let idle = asked.saturating_sub(used);
    let free = width - used - idle;
    ["█".repeat(used), "▒".repeat(idle), "·".repeat(free)].concat()
}

pub(super) fn add_waiting(page: &mut Page, waiting: &[(&str, Cow<'_, str>)], most: usize) {
    if waiting.is_empty() {
        return;
    }
    page.section("WAITING");
    let name = waiting.iter().map(|(pod, _)| pod.len()).max().unwrap_or(0);
    // Half the window for the reasons at least.
    let name = name.min(page.size.columns / 2);
    let shown = match waiting.len() {
        count if count > most => most - 1,
        count => count,
    };
    for (pod, why) in &waiting[..shown] {
        page.add(Look::Plain, format!("{:name$}  {why}", fit(pod, name)));
    }
    if waiting.len() > shown {
        let more = format!("... and {}", count(waiting.len() - shown, "more pod"));
        page.add(Look::Faint, more);
    }
}

pub(super) fn add_changes(page: &mut Page, board: &Board, rows: usize) {
    if rows < 3 || board.changes().next().is_none() {
        return;
    }
    page.section("LATEST");
    for change in board.changes().take(rows - 2) {
        page.add(Look::Plain, change.to_string());
    }
}

fn commands(frame: &Frame, waiting: Option<&str>, size: Size) -> Vec<String> {
    let mut commands = vec!["In another terminal:".to_owned()];
    commands.extend(wrap(&format!("  {}", frame.export), size.columns));
    commands.extend(frame.commands.iter().map(|command| format!("  {command}")));
    if let Some(pod) = waiting {
        commands.push(format!("  {} explain pod {pod}", frame.program));
    }
    commands.push(format!("{STOP}; arrow keys scroll."));
    commands
}

#[cfg(test)]
pub(super) mod tests {
    use kube::runtime::watcher::Event;
    use serde_json::json;

    use super::*;
    use crate::up::board::Node;

    pub(in crate::up) fn frame() -> Frame {
        Frame {
            title: "tidepool 0.0.0: a Kubernetes API on https://127.0.0.1:6440".into(),
            export: "export KUBECONFIG=/k".into(),
            commands: vec!["kubectl get pods".into(); 2],
            scores: None,
            schedulers: vec!["default-scheduler".into()],
            program: "tidepool".into(),
        }
    }

    pub(in crate::up) fn board(nodes: usize, pods: usize) -> Board {
        let mut board = Board::default();
        for number in 1..=nodes {
            let node = json!({
                "metadata": {"name": format!("node-{number:03}"), "labels": {"topology.kubernetes.io/zone": "zone-a"}},
                "status": {"allocatable": {"cpu": "10", "memory": "64Gi"}},
            });
            board.node_event(Event::Apply(serde_json::from_value(node).unwrap()));
        }
        for number in 0..pods {
            let waits = number % 3 == 0;
            let node = if waits { "" } else { "node-001" };
            let conditions = json!([{"type": "PodScheduled", "status": if waits { "False" } else { "True" },
                "message": "0/6 nodes are available: 6 Insufficient cpu.\u{1b}[2J\nno"}]);
            let pod = json!({
                "metadata": {"name": format!("pod-{number}"), "namespace": "demo", "uid": number.to_string()},
                "spec": {"nodeName": node, "containers": [
                    {"name": "c", "resources": {"requests": {"cpu": "1500m", "memory": "1Gi"}}}]},
                "status": {"phase": if waits { "Pending" } else { "Running" }, "conditions": conditions},
            });
            let pod = serde_json::from_value(pod).unwrap();
            board.pod_event(Event::Apply(pod), "12:00:00");
        }
        board
    }

    pub(in crate::up) fn lending_node() -> Node {
        let node = json!({
            "metadata": {"name": "node-001"},
            "status": {"allocatable": {"cpu": "10", "kubernetes.io/mid-cpu": "4500", "kubernetes.io/batch-cpu": "0"}},
        });
        serde_json::from_value(node).unwrap()
    }

    fn text(board: &Board, columns: usize, rows: usize) -> String {
        let size = Size { columns, rows };
        let lines = draw(board, &frame(), &[], Duration::from_millis(61_500), size);
        let lines: Vec<String> = lines.into_iter().map(|line| line.text).collect();
        lines.join("\n")
    }

    #[test]
    fn what_tiers_borrow_is_shown_where_nodes_lend() {
        let mut board = board(1, 2);
        assert!(!text(&board, 80, 24).contains("lent:"));
        board.node_event(Event::Apply(lending_node()));
        let pod = json!({
            "metadata": {"name": "job", "namespace": "demo", "uid": "job", "annotations": {"tidepool.io/cpu-use": "1"}},
            "spec": {"nodeName": "node-001", "containers": [
                {"name": "c", "resources": {"requests": {"kubernetes.io/mid-cpu": "1500"}}}]},
            "status": {"phase": "Running"},
        });
        board.pod_event(
            Event::Apply(serde_json::from_value(pod).unwrap()),
            "12:00:00",
        );
        // The tide is for services only.
        board.set_tide(0.2);
        let page = text(&board, 80, 24);
        assert!(
            page.contains("lent: mid 4.5 cores, 1.5 requested\n"),
            "{page}"
        );
        let report = json!({"metadata": {"name": "node-001"}, "status": {"resources": {"allocatable":
            {"resource.katalyst.kubewharf.io/reclaimed_millicpu": "3k"}}}});
        board.report_event(Event::Apply(serde_json::from_value(report).unwrap()));
        let lent = "lent: mid 4.5 cores, 1.5 requested; reclaimed 3.0 cores, 0.0 requested\n";
        assert!(text(&board, 80, 24).contains(lent));
        assert!(page.contains("1.0 used (10%)"), "{page}");
    }

    #[test]
    fn the_page_fits_into_every_window() {
        let logged = vec!["a warning that is rather long".to_owned(); 5];
        for (nodes, pods) in [(0, 0), (1, 1), (6, 60), (5000, 9)] {
            let board = board(nodes, pods);
            for columns in [0, 1, 2, 7, 20, 40, 79, 80, 200] {
                for rows in 0..60 {
                    let size = Size { columns, rows };
                    let lines = draw(&board, &frame(), &logged, Duration::ZERO, size);
                    assert!(lines.len() <= rows, "{size:?}: {} lines", lines.len());
                    for line in lines {
                        let width = line.text.chars().count();
                        assert!(width <= columns, "{size:?}: {}", line.text);
                        assert!(!line.text.contains(char::is_control), "{:?}", line.text);
                    }
                }
            }
        }
    }

    #[test]
    fn a_window_of_80_columns() {
        let want = "\
tidepool 0.0.0: a Kubernetes API on https://127.0.0.1:6440, 2 nodes
pods: 3 running, 2 waiting; 3 placed in 1m 1s
cpu: 20.0 cores, 4.5 requested (22%), 0.0 used (0%)

NODE      ZONE      PODS          CPU  █ used ▒ requested           MEMORY
node-001  zone-a       3     4.5/10.0  ▒▒▒▒▒▒▒▒▒▒··············     3/64Gi
node-002  zone-a       0     0.0/10.0  ························     0/64Gi

WAITING
demo/pod-0  0/6 nodes are available: 6 Insufficient cpu. [2J no
demo/pod-3  0/6 nodes are available: 6 Insufficient cpu. [2J no

LATEST
12:00:00  placed   demo/pod-4 on node-001
12:00:00  waiting  demo/pod-3: 0/6 nodes are available: 6 Insufficient cpu.\\u{1…
12:00:00  placed   demo/pod-2 on node-001
12:00:00  placed   demo/pod-1 on node-001
12:00:00  waiting  demo/pod-0: 0/6 nodes are available: 6 Insufficient cpu.\\u{1…

In another terminal:
  export KUBECONFIG=/k
  kubectl get pods
  kubectl get pods
  tidepool explain pod demo/pod-0
q or Ctrl-C stops everything; arrow keys scroll.";
        assert_eq!(text(&board(2, 5), 80, 25), want);
    }

    #[test]
    fn a_small_window_shows_nodes_and_pods() {
        let text = text(&board(6, 9), 60, 18);
        for part in ["node-003", "WAITING", "LATEST", "placed   demo/pod-8"] {
            assert!(text.contains(part), "{part} is not in:\n{text}");
        }
        assert!(!text.contains("In another terminal"), "{text}");
    }

    #[test]
    fn every_window_shows_how_to_connect_and_stop() {
        for (nodes, pods) in [(0, 0), (6, 4), (6, 90), (5000, 9)] {
            let board = board(nodes, pods);
            for (columns, rows) in [(80, 24), (100, 30), (60, MIN_ROWS), (80, 60)] {
                let text = text(&board, columns, rows);
                let last = text.lines().last().unwrap();
                assert!(last.starts_with(STOP), "{text}");
                assert_eq!(text.lines().count(), rows, "{text}");
                let whole = text.contains("In another terminal");
                assert_ne!(whole, last.contains("export KUBECONFIG=/k"), "{text}");
            }
        }
        let full = text(&board(6, 90), 80, 24);
        assert!(full.ends_with("export KUBECONFIG=/k"), "{full}");
    }

    #[test]
    fn the_kubeconfig_is_whole_at_80_by_24() {
        for length in [10, 40, 62, 63, 120, 300] {
            let mut frame = frame();
            frame.export = format!("export KUBECONFIG=/{}", "k".repeat(length - 1));
            for (nodes, pods) in [(0, 0), (6, 4), (6, 90), (5000, 9)] {
                let size = Size {
                    columns: 80,
                    rows: 24,
                };
                let board = board(nodes, pods);
                let rows = draw(&board, &frame, &[], Duration::ZERO, size);
                assert!(rows.len() <= size.rows);
                let text: String = rows.into_iter().map(|row| row.text).collect();
                assert!(
                    text.contains(&frame.export),
                    "{length}, {pods} pods: {text}"
                );
            }
        }
    }

    #[test]
    fn the_number_of_nodes_is_live() {
        let mut board = board(2, 0);
        let first = |board: &Board| text(board, 80, 24).lines().next().unwrap().to_owned();
        assert!(first(&board).ends_with(", 2 nodes"), "{}", first(&board));
        let gone = json!({"metadata": {"name": "node-001"}});
        board.node_event(Event::Delete(serde_json::from_value(gone).unwrap()));
        assert!(first(&board).ends_with(", 1 node"), "{}", first(&board));
    }

    #[test]
    fn score_tables_have_a_place_of_their_own() {
        let mut frame = frame();
        frame.scores = Some("scores: curl -s http://127.0.0.1:1/debug/scores".into());
        let size = Size {
            columns: 80,
            rows: 24,
        };
        let logged = ["Top1 scores\n| # |".to_owned(), "WARN something".to_owned()];
        let rows = draw(&board(1, 0), &frame, &logged, Duration::ZERO, size);
        let text: Vec<String> = rows.into_iter().map(|row| row.text).collect();
        assert_eq!(Some(&text[3]), frame.scores.as_ref());
        assert_eq!(text[4], "WARN something");
        assert!(!text.concat().contains("Top1"), "{text:?}");
    }

    #[test]
    fn bars_show_use_within_requests() {
        for (used, asked, all, want) in [
            (0, 0, 10, "·········· "),
            (2, 5, 10, "██▒▒▒····· "),
            (5, 2, 10, "█████····· "),
            (20, 30, 10, "██████████ "),
            (-5, -1, 10, "·········· "),
            (1, 1, 0, "██████████ "),
        ] {
            assert_eq!(
                bar(used, asked, all, 10),
                want.trim_end(),
                "{used} {asked} {all}"
            );
        }
    }
}
