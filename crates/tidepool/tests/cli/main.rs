//! The real binary, as a person runs it.

#![allow(clippy::unwrap_used, reason = "a test may stop where it stands")]

mod admitting;
mod asking;
mod certificates;
mod configuring;
mod explaining;
mod hot_spots;
mod load;
mod restoring;
mod terminal;
mod tide;
mod tiers;

use std::{
    io::{BufRead, BufReader, Read},
    net::TcpListener,
    os::unix::fs::PermissionsExt,
    path::Path,
    process::{Child, Command, ExitStatus, Stdio},
    sync::mpsc,
    time::{Duration, Instant},
};

use k8s_openapi::api::core::v1::Node;
use kube::{
    Api, Client, Config,
    config::{KubeConfigOptions, Kubeconfig},
};

/// Long enough for a busy machine; nothing waits this long when all is well.
const PATIENCE: Duration = Duration::from_secs(60);

fn tidepool(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tidepool"));
    // Nothing but itself: no PATH, no HOME, no settings of the person who runs the tests.
    command.args(arguments).env_clear().stdin(Stdio::null());
    command
}

struct Output {
    code: Option<i32>,
    stdout: String,
    stderr: String,
}

fn run(command: &mut Command) -> Output {
    let output = command.output().unwrap();
    Output {
        code: output.status.code(),
        stdout: String::from_utf8(output.stdout).unwrap(),
        stderr: String::from_utf8(output.stderr).unwrap(),
    }
}

/// A running `tidepool up`, killed when the test ends.
struct Up {
    child: Child,
}

impl Drop for Up {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Up {
    /// Starts it and returns when it has said what to try next.
    fn start(arguments: &[&str]) -> Self {
        let mut command = tidepool(&["up", "--port", "0"]);
        let mut child = command
            .args(arguments)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let stdout = child.stdout.take().unwrap();
        let (said, hear) = mpsc::channel();
        std::thread::spawn(move || {
            for line in BufReader::new(stdout).lines() {
                let _ = said.send(line.unwrap());
            }
        });
        let up = Self { child };
        while !hear
            .recv_timeout(PATIENCE)
            .expect("it says what to try next")
            .contains("get nodes")
        {}
        up
    }

    fn send(&self, signal: &str) {
        let pid = self.child.id().to_string();
        assert!(
            Command::new("kill")
                .args([signal, &pid])
                .status()
                .unwrap()
                .success()
        );
    }

    fn ended(&mut self) -> ExitStatus {
        let start = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status;
            }
            assert!(start.elapsed() < PATIENCE, "it does not stop");
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

async fn client(kubeconfig: &Path) -> Client {
    let kubeconfig = Kubeconfig::read_from(kubeconfig).unwrap();
    let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await;
    Client::try_from(config.unwrap()).unwrap()
}

async fn node_names(kubeconfig: &Path) -> Vec<String> {
    let nodes: Api<Node> = Api::all(client(kubeconfig).await);
    let nodes = nodes.list(&Default::default()).await.unwrap();
    nodes
        .items
        .into_iter()
        .filter_map(|node| node.metadata.name)
        .collect()
}

#[tokio::test]
async fn up_serves_nodes_and_a_private_kubeconfig() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("new").join("config");
    let _up = Up::start(&["--nodes", "4", "--kubeconfig-out", path.to_str().unwrap()]);
    assert_eq!(
        node_names(&path).await,
        ["node-001", "node-002", "node-003", "node-004"]
    );
    assert_eq!(
        std::fs::metadata(&path).unwrap().permissions().mode() & 0o777,
        0o600
    );
    let mut left: Vec<_> = std::fs::read_dir(path.parent().unwrap())
        .unwrap()
        .map(|e| e.unwrap().file_name())
        .collect();
    left.sort();
    assert_eq!(
        left,
        ["config", "config.scheduler.yaml"],
        "no half-written file stays"
    );
}

#[test]
fn up_ends_by_itself_and_says_what_to_try() {
    let cache = tempfile::tempdir().unwrap();
    let mut command = tidepool(&["up", "--for", "3s", "--port", "0"]);
    let output = run(command.env("XDG_CACHE_HOME", cache.path()));
    assert_eq!((output.code, output.stderr.as_str()), (Some(0), ""));
    let path = cache.path().join("tidepool/kubeconfig");
    assert!(
        output
            .stdout
            .starts_with(&format!("tidepool {}: ", env!("CARGO_PKG_VERSION"))),
        "{}",
        output.stdout
    );
    assert!(
        output.stdout.contains("https://127.0.0.1:") && output.stdout.contains("6 simulated nodes")
    );
    let export = format!("  export KUBECONFIG={}\n", path.display());
    assert!(output.stdout.contains(&export), "{}", output.stdout);
    assert!(
        output.stdout.contains("  placed   demo/storefront-"),
        "{}",
        output.stdout
    );
    assert!(path.is_file());
}

#[tokio::test]
async fn an_empty_cluster_has_no_nodes() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("config");
    let _up = Up::start(&["--empty", "--kubeconfig-out", path.to_str().unwrap()]);
    assert_eq!(node_names(&path).await, [""; 0]);
}

#[test]
fn signals_stop_it_in_good_order() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("config");
    for signal in ["-INT", "-TERM"] {
        let mut up = Up::start(&["--kubeconfig-out", path.to_str().unwrap()]);
        up.send(signal);
        assert_eq!(up.ended().code(), Some(0), "{signal}");
    }
}

#[test]
fn a_second_cluster_leaves_the_files_of_the_first_alone() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("config");
    let path = path.to_str().unwrap();
    let files = || {
        let beside = format!("{path}.scheduler.yaml");
        [path, &beside].map(|file| std::fs::read_to_string(file).unwrap())
    };
    let _first = Up::start(&["--empty", "--kubeconfig-out", path]);
    let before = files();
    let arguments = ["up", "--port", "0", "--for", "1s", "--kubeconfig-out", path];
    let second = run(&mut tidepool(&arguments));
    assert_eq!(second.code, Some(1), "{}", second.stderr);
    assert_eq!(second.stderr.lines().count(), 1, "{}", second.stderr);
    for word in ["a cluster is running at https://127.0.0.1:", path] {
        assert!(second.stderr.contains(word), "{}", second.stderr);
    }
    assert_eq!(files(), before);
}

/// As kube-scheduler's debugger does.
#[test]
fn who_asks_by_a_signal_finds_the_numbers_in_the_log() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("config");
    let mut command = tidepool(&["up", "--port", "0", "--kubeconfig-out"]);
    command
        .arg(&path)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut up = Up {
        child: command.spawn().unwrap(),
    };
    let mut stdout = BufReader::new(up.child.stdout.take().unwrap()).lines();
    while !stdout.next().unwrap().unwrap().contains("Ctrl-C") {}
    let mut log = BufReader::new(up.child.stderr.take().unwrap()).lines();
    for _ in 0..2 {
        up.send("-USR2");
        let line = log.next().unwrap().unwrap();
        for part in [
            "INFO asked: ",
            "tidepool debug cache",
            " nodes=",
            " assumed=",
            " gated=",
        ] {
            assert!(line.contains(part), "{part}: {line}");
        }
    }
    drop(stdout);
    up.send("-TERM");
    assert_eq!(up.ended().code(), Some(0));
}

#[test]
fn a_reader_that_went_away_does_not_stop_it() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("config");
    let mut command = tidepool(&[
        "up",
        "--for",
        "1s",
        "--port",
        "0",
        "--kubeconfig-out",
        path.to_str().unwrap(),
    ]);
    let mut child = command
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let mut stderr = String::new();
    child
        .stderr
        .take()
        .unwrap()
        .read_to_string(&mut stderr)
        .unwrap();
    assert_eq!(
        (child.wait().unwrap().code(), stderr.as_str()),
        (Some(0), "")
    );
}

#[test]
fn what_cannot_work_is_said_in_one_sentence() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("file");
    std::fs::write(&file, "").unwrap();
    let under_a_file = file.join("config");
    let busy = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = busy.local_addr().unwrap().port().to_string();
    let good = directory.path().join("config");
    for (case, arguments, wanted) in [
        (
            "busy port",
            vec!["--port", &port, "--kubeconfig-out", good.to_str().unwrap()],
            vec![port.as_str(), "--port", "in use", "--kubeconfig-out"],
        ),
        (
            "path under a file",
            vec![
                "--port",
                "0",
                "--kubeconfig-out",
                under_a_file.to_str().unwrap(),
            ],
            vec![under_a_file.to_str().unwrap(), "--kubeconfig-out"],
        ),
        (
            "path of a directory",
            vec![
                "--port",
                "0",
                "--kubeconfig-out",
                directory.path().to_str().unwrap(),
            ],
            vec![directory.path().to_str().unwrap(), "--kubeconfig-out"],
        ),
        (
            "no home",
            vec!["--port", "0"],
            vec!["HOME", "--kubeconfig-out"],
        ),
    ] {
        let output = run(tidepool(&["up", "--for", "1s"]).args(arguments));
        assert_eq!(
            (output.code, output.stdout.as_str()),
            (Some(1), ""),
            "{case}: {}",
            output.stderr
        );
        assert_eq!(
            output.stderr.lines().count(),
            1,
            "{case}: {}",
            output.stderr
        );
        for word in wanted {
            assert!(
                output.stderr.contains(word),
                "{case}: {word} is not in {}",
                output.stderr
            );
        }
    }
}

#[test]
fn flags_that_make_no_sense_are_refused() {
    for (case, arguments, wanted) in [
        ("unknown flag", vec!["up", "--nodez", "3"], "--nodez"),
        (
            "bad duration",
            vec!["up", "--for", "soon"],
            "use a duration like 20s, 5m or 1h30m",
        ),
        (
            "too many nodes",
            vec!["up", "--nodes", "5001"],
            "'5001' for '--nodes <NODES>': use a whole number from 0 to 5000",
        ),
        (
            "fewer than no nodes",
            vec!["up", "--nodes", "-3"],
            "'-3' for '--nodes <NODES>': use a whole number",
        ),
        (
            "no number",
            vec!["up", "--port", "http"],
            "'http' for '--port <PORT>': use a whole number from 0 to 65535",
        ),
        (
            "more scores than anybody reads",
            vec!["scheduler", "--debug-scores=1001"],
            "'1001' for '--debug-scores <COUNT>': use a whole number from 0 to 1000",
        ),
        (
            "no number of scores",
            vec!["up", "-s", "all"],
            "'all' for '--debug-scores <COUNT>': use a whole number from 0 to 1000",
        ),
        (
            "two wishes",
            vec!["up", "--empty", "--nodes", "3"],
            "--nodes",
        ),
        ("unknown level", vec!["up", "--log-level", "loud"], "'loud'"),
        ("unknown command", vec!["upp"], "'upp'"),
        ("no command", vec![], "Usage"),
    ] {
        let output = run(&mut tidepool(&arguments));
        assert_eq!(
            (output.code, output.stdout.as_str()),
            (Some(2), ""),
            "{case}"
        );
        assert!(output.stderr.contains(wanted), "{case}: {}", output.stderr);
    }
}

const CONFIGURATION: &str =
    "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n";

/// Runs on a file with this text, and returns the output with the file's path taken out.
fn run_on(arguments: &[&str], text: &str) -> Output {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file.yaml");
    std::fs::write(&file, text).unwrap();
    let path = file.to_str().unwrap();
    let output = run(tidepool(arguments).arg(path));
    Output {
        stdout: output.stdout.replace(path, "FILE"),
        stderr: output.stderr.replace(path, "FILE"),
        ..output
    }
}

#[test]
fn config_check_says_what_is_wrong_and_where() {
    let good = format!("{CONFIGURATION}percentageOfNodesToScore: 50\n");
    let output = run_on(&["config", "check"], &good);
    assert_eq!(
        (output.code, &output.stdout[..]),
        (
            Some(0),
            "FILE:3: warning: percentageOfNodesToScore: has no effect: the scheduler scores every node\nFILE: ok\n"
        )
    );
    let bad = format!("{CONFIGURATION}profils: []\n");
    let output = run_on(&["config", "check"], &bad);
    assert_eq!(
        (output.code, &output.stdout[..], &output.stderr[..]),
        (
            Some(3),
            "FILE:3: error: profils: unknown field `profils`, did you mean `profiles`?\n",
            "tidepool: FILE has an error\n"
        )
    );
}

#[test]
fn an_extender_that_cannot_be_asked_is_no_good_to_either() {
    let text = format!("{CONFIGURATION}extenders:\n- {{urlPrefix: ftp://x/y, filterVerb: f}}\n");
    let wanted = "extenders[0].urlPrefix: Invalid value: \"ftp://x/y\": must be a URL";
    let checked = run_on(&["config", "check"], &text);
    assert_eq!(checked.code, Some(3), "{}", checked.stderr);
    let line = format!("FILE:4: error: {wanted}");
    assert!(checked.stdout.starts_with(&line), "{}", checked.stdout);
    let used = run_on(&["scheduler", "--kubeconfig=/nowhere", "--config"], &text);
    assert_eq!(used.code, Some(1), "{}", used.stderr);
    // Here the line follows a sentence that names `config check`.
    let head = "tidepool: cannot use FILE; `tidepool config check FILE` reports warnings too\n";
    assert!(
        used.stderr.starts_with(&[head, &line].concat()),
        "{}",
        used.stderr
    );
    let up = run_on(&["up", "--kubeconfig-out=/nowhere/k", "--config"], &text);
    assert_eq!(up.code, Some(1), "{}", up.stderr);
    assert!(
        up.stderr.starts_with(&[head, &line].concat()),
        "{}",
        up.stderr
    );
}

#[test]
fn values_of_flags_that_make_no_sense_together_are_bad_input() {
    for (flag, wanted) in [
        (
            "--scheduler-name=default-scheduler",
            "belongs to kube-scheduler",
        ),
        (
            "--leader-elect-lease-duration=5s",
            "must be longer than renew deadline",
        ),
        ("--leader-elect-resource-lock=endpoints", "use leases"),
    ] {
        let output = run(&mut tidepool(&["scheduler", flag]));
        assert_eq!(output.code, Some(2), "{flag}: {}", output.stderr);
        assert!(output.stderr.contains(wanted), "{flag}: {}", output.stderr);
    }
}

/// It says so before it is connected to anything.
#[test]
fn a_lease_that_conflicts_with_kube_scheduler_causes_a_warning() {
    for (arguments, wanted) in [
        (
            &["--leader-elect-resource-name=kube-scheduler"][..],
            "belongs to kube-scheduler",
        ),
        (
            &["--mode=primary", "--leader-elect=false"],
            "schedule the same pods at the same time",
        ),
    ] {
        let arguments = [&["scheduler", "--kubeconfig=/nowhere"], arguments].concat();
        let output = run(&mut tidepool(&arguments));
        let warning = output.stderr.lines().next().unwrap();
        assert!(
            warning.contains(" WARN ") && warning.contains(wanted),
            "{warning}"
        );
    }
}

#[test]
fn a_scheduler_with_a_plugin_that_does_not_exist_does_not_start() {
    let plugins = "{score: {enabled: [{name: NodeResourceFit}]}}";
    let text = format!("{CONFIGURATION}profiles: [{{schedulerName: mine, plugins: {plugins}}}]\n");
    let output = run_on(&["scheduler", "--kubeconfig=/nowhere", "--config"], &text);
    assert_eq!(
        (output.code, &output.stderr[..]),
        (
            Some(1),
            "tidepool: cannot use FILE; `tidepool config check FILE` reports warnings too\n\
             FILE:3: error: profiles[0].plugins.score.enabled[0]: ScorePlugin \"NodeResourceFit\" \
             does not exist, did you mean `NodeResourcesFit`?\n"
        )
    );
}

#[test]
fn sim_run_says_what_happened_and_checks_it() {
    let scenario = "cluster: {nodes: [{name: a, cpu: 1}]}\npods: [{name: p, cpu: 1}]\n";
    let output = run_on(&["sim", "run"], &format!("{scenario}expect: {{p: a}}\n"));
    assert_eq!(
        (output.code, &output.stdout[..]),
        (
            Some(0),
            "FILE:\n        0s  pod default/p is bound to a\nFILE: ok\n"
        )
    );
    let output = run_on(
        &["sim", "run", "--quiet"],
        &format!("{scenario}expect: {{p: b}}\n"),
    );
    assert_eq!(
        (output.code, &output.stdout[..], &output.stderr[..]),
        (
            Some(1),
            "FILE:3: not met: expect.p: it should be on b, but it is on a\n",
            "tidepool: 1 of 1 scenario failed\n"
        )
    );
    let output = run_on(&["sim", "run"], "cluster: {node: []}\n");
    assert_eq!(
        (output.code, &output.stdout[..]),
        (
            Some(1),
            "FILE:1: error: cluster.node: unknown field `node`, did you mean `nodes`?\n"
        )
    );
}

#[test]
fn a_file_that_is_not_there() {
    for (arguments, code) in [
        (["config", "check", "/nowhere.yaml"], 1),
        (["sim", "run", "/nowhere.yaml"], 1),
        (["scheduler", "--kubeconfig", "/nowhere.yaml"], 2),
    ] {
        let output = run(&mut tidepool(&arguments));
        assert_eq!(output.code, Some(code), "{arguments:?}");
        assert_eq!(
            output.stderr,
            "tidepool: cannot read /nowhere.yaml: No such file or directory (os error 2)\n",
            "{arguments:?}"
        );
    }
}
