//! `status` and `explain`: where the scheduler is found, and what becomes of refusals.

use std::{
    io::{BufRead, BufReader, Write},
    net::TcpListener,
    path::Path,
    process::Stdio,
    time::{Duration, Instant},
};

use k8s_openapi::{
    api::coordination::v1::{Lease, LeaseSpec},
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};
use kube::{
    Api, Client, Config,
    api::PostParams,
    config::{KubeConfigOptions, Kubeconfig},
};

use crate::{Output, PATIENCE, Up, run, tidepool};

/// Answers every request alike, for as long as the test runs.
fn server(answer: &str, body: &str) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let text = format!(
        "HTTP/1.1 {answer}\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let (mut stream, text) = (stream.unwrap(), text.clone());
            // A connection has several requests; each ends with an empty line.
            std::thread::spawn(move || {
                let lines = BufReader::new(stream.try_clone().unwrap()).lines();
                for line in lines.map_while(Result::ok) {
                    if line.is_empty() && stream.write_all(text.as_bytes()).is_err() {
                        return;
                    }
                }
            });
        }
    });
    url
}

/// As somebody whose home is this.
fn ask(home: &Path, arguments: &[&str]) -> Output {
    run(tidepool(arguments).env("HOME", home))
}

#[test]
fn every_error_is_one_sentence_with_a_remedy() {
    let home = tempfile::tempdir().unwrap();
    let nobody = TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap();
    let nobody = format!("http://{nobody}");
    let wants_token = server(
        "401 Unauthorized",
        r#"{"code": "unauthorized", "message": "the request has no valid bearer token"}"#,
    );
    let forbids = server(
        "403 Forbidden",
        r#"{"code": "forbidden", "message": "user `eve` has no permission to get /tidepool/v1/status"}"#,
    );
    let busy = server(
        "503 Service Unavailable",
        r#"{"code": "unavailable", "message": "the scheduler is busy"}"#,
    );
    let no_pod = server(
        "404 Not Found",
        r#"{"code": "podNotFound", "message": "unknown pod demo/x"}"#,
    );
    let no_node = server(
        "404 Not Found",
        r#"{"code": "nodeNotFound", "message": "unknown node x"}"#,
    );
    let other = server("200 OK", "<html>");
    let not_tls = TcpListener::bind("127.0.0.1:0").unwrap();
    let not_tls_url = format!("https://{}", not_tls.local_addr().unwrap());
    std::thread::spawn(move || {
        for stream in not_tls.incoming() {
            let _ = stream
                .unwrap()
                .write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n");
        }
    });
    for (case, arguments, code, words) in [
        (
            "nobody there",
            vec!["status", "--server", &nobody],
            4,
            ["does not answer", "tidepool up"],
        ),
        (
            "a token is wanted",
            vec!["status", "--server", &wants_token],
            5,
            ["bearer token", "--kubeconfig"],
        ),
        (
            "not allowed",
            vec!["status", "--server", &forbids],
            5,
            [
                "user `eve` has no permission",
                "ask a cluster administrator",
            ],
        ),
        (
            "busy",
            vec!["status", "--server", &busy],
            4,
            ["is busy", "try again"],
        ),
        (
            "no such pod",
            vec!["explain", "pod", "demo/x", "--server", &no_pod],
            1,
            ["unknown pod demo/x", "kubectl get pods -A"],
        ),
        (
            "no such node",
            vec!["debug", "cache", "x", "--server", &no_node],
            1,
            ["unknown node x", "kubectl get nodes"],
        ),
        (
            "no name of a node",
            vec!["debug", "cache", "a/b"],
            2,
            ["`a/b` is not a valid node name", "kubectl get nodes"],
        ),
        (
            "something else",
            vec!["status", "--server", &other],
            1,
            ["not a tidepool scheduler", "--server"],
        ),
        (
            "no address",
            vec!["status", "--server", "localhost"],
            2,
            ["--server localhost", "http://127.0.0.1:10259"],
        ),
        (
            "no pod",
            vec!["explain", "pod", "a/b/c"],
            2,
            ["`a/b/c` is not a valid pod name", "demo/web-1"],
        ),
        (
            "nothing known",
            vec!["status"],
            4,
            ["there is no kubeconfig", "tidepool up"],
        ),
        (
            "no file",
            vec!["status", "--kubeconfig", "/nowhere"],
            2,
            ["cannot read /nowhere", "No such file"],
        ),
        (
            "an address and a Lease",
            vec!["status", "--server", &nobody, "--lease", "a/b"],
            2,
            ["cannot be used with", "--lease"],
        ),
        (
            "no CA",
            vec![
                "status",
                "--server",
                "https://127.0.0.1:1",
                "--certificate-authority",
                "/dev/null",
            ],
            2,
            ["/dev/null contains no certificate", "PEM"],
        ),
        (
            "plain HTTP where TLS is expected",
            vec!["status", "--server", &not_tls_url],
            4,
            ["does not answer (TLS fails: ", "--server"],
        ),
    ] {
        let output = ask(home.path(), &arguments);
        let told = &output.stderr;
        assert_eq!(
            (output.code, &output.stdout[..]),
            (Some(code), ""),
            "{case}: {told}"
        );
        // clap adds how to use the flags.
        let first = told.split("\n\n").next().unwrap();
        assert_eq!(first.lines().count(), 1, "{case}: {told}");
        for word in words {
            assert!(told.contains(word), "{case}: {word} is not in {told}");
        }
    }
}

#[test]
fn a_running_cluster_is_found_and_explained() {
    let home = tempfile::tempdir().unwrap();
    let kubeconfig = home.path().join(".cache/tidepool/kubeconfig");
    let path = kubeconfig.to_str().unwrap();
    let up = Up::start(&["--kubeconfig-out", path]);
    let status = ask(home.path(), &["status"]);
    assert_eq!((status.code, &status.stderr[..]), (Some(0), ""));
    assert!(
        status
            .stdout
            .contains("leader, holds kube-system/kube-scheduler"),
        "{}",
        status.stdout
    );
    assert!(status.stdout.contains("6 nodes"), "{}", status.stdout);
    let place = "context    tidepool, cluster tidepool at https://127.0.0.1:";
    assert!(status.stdout.starts_with(place), "{}", status.stdout);

    let explained = ask(home.path(), &["explain", "pod", "demo/train-large"]);
    assert_eq!(explained.code, Some(0), "{}", explained.stderr);
    assert!(
        explained.stdout.contains("0/6 nodes fit"),
        "{}",
        explained.stdout
    );
    for (format, part) in [
        ("json", "\"namespace\": \"demo\""),
        ("yaml", "namespace: demo\n"),
    ] {
        let arguments = ["explain", "pod", "demo/train-large", "-o", format];
        let output = ask(home.path(), &arguments);
        assert!(output.stdout.contains(part), "{format}: {}", output.stdout);
    }
    let cache = ask(home.path(), &["debug", "cache"]);
    assert_eq!((cache.code, &cache.stderr[..]), (Some(0), ""));
    let place = "context: tidepool, cluster tidepool at https://127.0.0.1:";
    for shown in [&explained.stdout, &cache.stdout] {
        let last = shown.lines().last().unwrap();
        assert!(last.starts_with(place), "{shown}");
    }
    let table = &cache.stdout;
    assert!(table.contains(" pods on 6 nodes at 2"), "{table}");
    let first = table.lines().nth(1).unwrap().split(' ').next().unwrap();
    let node = ask(home.path(), &["debug", "cache", first, "-o", "yaml"]);
    assert_eq!((node.code, &node.stderr[..]), (Some(0), ""));
    assert!(
        node.stdout.contains(&format!("name: {first}\n")),
        "{}",
        node.stdout
    );
    assert!(
        node.stdout.contains("  nonZeroRequested:\n"),
        "{}",
        node.stdout
    );
    let missing = ask(
        home.path(),
        &["explain", "pod", "demo/nobody", "--kubeconfig", path],
    );
    assert_eq!(missing.code, Some(1));
    assert!(
        missing.stderr.contains("pod demo/nobody does not exist"),
        "{}",
        missing.stderr
    );

    // The kubeconfig of another cluster is in use: this one does not answer for it.
    let home_config = home.path().join(".kube/config");
    std::fs::create_dir_all(home_config.parent().unwrap()).unwrap();
    let elsewhere = std::fs::read_to_string(&kubeconfig).unwrap();
    let start = elsewhere.find("https://127.0.0.1:").unwrap();
    let end = start + elsewhere[start..].find('\n').unwrap();
    let elsewhere = elsewhere.replace(&elsewhere[start..end], "https://127.0.0.1:1");
    std::fs::write(&home_config, elsewhere).unwrap();
    let output = ask(home.path(), &["status"]);
    assert_eq!(output.code, Some(4), "{}", output.stderr);
    let remedy = format!("for the cluster of `tidepool up` pass --kubeconfig {path}");
    for word in ["cannot connect to https://127.0.0.1:1 (", &remedy] {
        assert!(output.stderr.contains(word), "{word}: {}", output.stderr);
    }
    let named = ask(home.path(), &["status", "--kubeconfig", path]);
    assert_eq!(named.code, Some(0), "{}", named.stderr);
    std::fs::remove_file(home_config).unwrap();

    // The cluster is gone: another scheduler has the recorded address.
    let beside = home
        .path()
        .join(".cache/tidepool/kubeconfig.scheduler.yaml");
    let written = std::fs::read_to_string(&beside).unwrap();
    drop(up);
    let other = server(
        "503 Service Unavailable",
        r#"{"code": "unavailable", "message": "it is another one"}"#,
    );
    let (head, rest) = written.split_once("server: ").unwrap();
    let (_, rest) = rest.split_once('\n').unwrap();
    std::fs::write(&beside, format!("{head}server: {other}\n{rest}")).unwrap();
    let output = ask(home.path(), &["status"]);
    assert_eq!(output.code, Some(4), "{}", output.stderr);
    for word in [
        "no scheduler found: cannot connect to https://127.0.0.1:",
        "Connection refused",
    ] {
        assert!(output.stderr.contains(word), "{word}: {}", output.stderr);
    }
}

/// 127.0.0.1 on the Lease of another machine's scheduler is not ours.
#[tokio::test]
async fn a_scheduler_of_another_lease_is_refused() {
    let home = tempfile::tempdir().unwrap();
    let kubeconfig = home.path().join("kubeconfig");
    let path = kubeconfig.to_str().unwrap();
    let _up = Up::start(&["--kubeconfig-out", path, "--no-demo"]);
    let config = Kubeconfig::read_from(&kubeconfig).unwrap();
    let config = Config::from_custom_kubeconfig(config, &KubeConfigOptions::default()).await;
    let client = Client::try_from(config.unwrap()).unwrap();
    let leases: Api<Lease> = Api::namespaced(client.clone(), "kube-system");
    let begun = Instant::now();
    let annotations = loop {
        let ours = leases.get_opt("kube-scheduler").await.unwrap();
        if let Some(annotations) = ours.and_then(|lease| lease.metadata.annotations) {
            break annotations;
        }
        assert!(begun.elapsed() < PATIENCE, "it takes no Lease");
        tokio::time::sleep(Duration::from_millis(50)).await;
    };
    let far = Lease {
        metadata: ObjectMeta {
            name: Some("far".into()),
            annotations: Some(annotations),
            ..ObjectMeta::default()
        },
        spec: Some(LeaseSpec {
            holder_identity: Some("far-away_1".into()),
            ..LeaseSpec::default()
        }),
    };
    let leases: Api<Lease> = Api::namespaced(client, "default");
    leases.create(&PostParams::default(), &far).await.unwrap();
    for command in [&["status"][..], &["explain", "pod", "default/x"]] {
        let arguments = [command, &["--kubeconfig", path, "--lease", "default/far"]].concat();
        let output = ask(home.path(), &arguments);
        assert_eq!(output.code, Some(4), "{}", output.stderr);
        let words = "Lease default/far has the address http://127.0.0.1:";
        assert!(output.stderr.contains(words), "{}", output.stderr);
        assert_eq!(output.stderr.lines().count(), 1, "{}", output.stderr);
    }
    let output = ask(home.path(), &["status", "--kubeconfig", path]);
    assert_eq!(output.code, Some(0), "{}", output.stderr);
}

#[test]
fn a_scheduler_is_found_wherever_its_lease_is() {
    let home = tempfile::tempdir().unwrap();
    let file = |name: &str| home.path().join(name);
    let configuration = "\
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
leaderElection: {resourceNamespace: infra, resourceName: lock}
";
    let (config, kubeconfig) = (file("config.yaml"), file("kubeconfig"));
    std::fs::write(&config, configuration).unwrap();
    let path = kubeconfig.to_str().unwrap();
    let config = config.to_str().unwrap();
    let _up = Up::start(&["--config", config, "--kubeconfig-out", path]);
    let found = ask(home.path(), &["status", "--kubeconfig", path]);
    assert!(
        found.stdout.contains("leader, holds infra/lock"),
        "{}",
        found.stderr
    );
    // A Lease is obeyed, whatever `up` recorded.
    let missing = [
        "status",
        "--kubeconfig",
        path,
        "--lease",
        "kube-system/nope",
    ];
    let missing = ask(home.path(), &missing);
    assert_eq!(
        (missing.code, &*missing.stdout),
        (Some(4), ""),
        "{}",
        missing.stderr
    );
    let words = "Lease kube-system/nope does not exist on https://127.0.0.1:";
    assert!(missing.stderr.contains(words), "{}", missing.stderr);
    // Without the record, only the Lease can tell.
    std::fs::remove_file(file("kubeconfig.scheduler.yaml")).unwrap();
    for (flags, code, words) in [
        // Users may write Leases in other namespaces.
        (
            &[][..],
            4,
            "no Lease in namespace kube-system or tidepool-system of",
        ),
        (&["--lease", "infra/lock"], 0, "leader, holds infra/lock"),
        (
            &["--lease-namespace", "infra"],
            0,
            "leader, holds infra/lock",
        ),
        (
            &["--lease", "infra/other"],
            4,
            "Lease infra/other does not exist on",
        ),
        (
            &["--lease-namespace", "default"],
            4,
            "no Lease in namespace default of",
        ),
        (&["--lease", "infra"], 2, "NAMESPACE/NAME"),
    ] {
        let arguments = [&["status", "--kubeconfig", path], flags].concat();
        let output = ask(home.path(), &arguments);
        let told = output.stdout + &output.stderr;
        assert_eq!(output.code, Some(code), "{flags:?}: {told}");
        assert!(told.contains(words), "{flags:?}: {told}");
    }
}

/// An unusable kubeconfig ends every command alike, and each cause is printed once.
#[test]
fn an_unusable_kubeconfig_or_certificate_is_one_sentence_in_every_command() {
    let home = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| {
        let path = home.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let broken = file("broken", "clusters: 7\n");
    let commands = [
        &["status"][..],
        &["explain", "pod", "x"],
        &["debug", "cache"],
        &["scheduler"],
        &["controllers"],
        &["nodes"],
    ];
    for command in commands {
        for (path, words) in [
            (&*broken, "failed to parse kubeconfig YAML"),
            ("/nowhere", "No such file or directory"),
        ] {
            let output = ask(home.path(), &[command, &["--kubeconfig", path]].concat());
            let told = &output.stderr;
            assert_eq!(output.code, Some(2), "{command:?}: {told}");
            assert_eq!(told.lines().count(), 1, "{command:?}: {told}");
            assert_eq!(told.matches(words).count(), 1, "{command:?}: {told}");
        }
    }

    // The API server has a certificate of another authority.
    let kubeconfig = home.path().join("up");
    let _up = Up::start(&[
        "--kubeconfig-out",
        kubeconfig.to_str().unwrap(),
        "--no-demo",
    ]);
    let mut distrusts = Kubeconfig::read_from(&kubeconfig).unwrap();
    let cluster = distrusts.clusters[0].cluster.as_mut().unwrap();
    cluster.certificate_authority_data = None;
    let distrusts = file("distrusts", &serde_json::to_string(&distrusts).unwrap());
    let output = ask(home.path(), &["status", "--kubeconfig", &distrusts]);
    let told = &output.stderr;
    assert_eq!(output.code, Some(4), "{told}");
    let words = "(its certificate is signed by an unknown authority)";
    assert_eq!(told.matches(words).count(), 1, "{told}");
    assert!(!told.contains("UnknownIssuer"), "{told}");
    let mut scheduler = tidepool(&["scheduler", "--secure-port=0", "--kubeconfig", &distrusts]);
    let mut scheduler = scheduler.stderr(Stdio::piped()).spawn().unwrap();
    let mut log = BufReader::new(scheduler.stderr.take().unwrap()).lines();
    let words =
        "cannot reach the API server; retrying: its certificate is signed by an unknown authority";
    let told = log.find(|line| line.as_ref().unwrap().contains("cannot reach"));
    scheduler.kill().unwrap();
    scheduler.wait().unwrap();
    let told = told.unwrap().unwrap();
    assert!(
        told.contains(words) && !told.contains("UnknownIssuer"),
        "{told}"
    );
}

/// As for kube-scheduler: an address without credentials.
#[test]
fn a_scheduler_needs_only_the_address_of_an_api_server() {
    let master = server("404 Not Found", "{}");
    let mut scheduler = tidepool(&["scheduler", "--secure-port=0", "--master", &master]);
    let mut scheduler = scheduler.stderr(Stdio::piped()).spawn().unwrap();
    let mut log = BufReader::new(scheduler.stderr.take().unwrap()).lines();
    let told = log.find(|line| line.as_ref().unwrap().contains("cannot acquire the Lease"));
    scheduler.kill().unwrap();
    scheduler.wait().unwrap();
    assert!(told.is_some(), "it does not use the address");
}
