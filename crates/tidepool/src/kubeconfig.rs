//! The kubeconfig file: its default path, atomic writes, and reading.
//!
//! `up` writes the address of its scheduler into a file beside it.

use std::{
    ffi::OsString,
    fs::{self, OpenOptions},
    io::{self, Read, Write},
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{anyhow, ensure};
use kube::config::Kubeconfig;
use serde::Deserialize;
use tokio::net::TcpStream;

/// `tidepool/kubeconfig` in the user's cache directory.
pub(crate) fn default_path(variable: impl Fn(&str) -> Option<OsString>) -> anyhow::Result<PathBuf> {
    // Its specification ignores relative paths.
    let absolute = |name: &str| {
        variable(name)
            .map(PathBuf::from)
            .filter(|path| path.is_absolute())
    };
    let cache =
        absolute("XDG_CACHE_HOME").or_else(|| absolute("HOME").map(|home| home.join(".cache")));
    let cache = cache.ok_or_else(|| {
        anyhow!("no cache directory, because HOME is not set; pass the path of the kubeconfig with --kubeconfig-out")
    })?;
    Ok(cache.join("tidepool").join("kubeconfig"))
}

/// The first line of our files. A file without it is not replaced, unless `kubectl config` rewrote our kubeconfig.
const OURS: &str = "# Written by `tidepool up`, which replaces it at each start.\n";
/// The user in it.
pub(crate) const USER: &str = "admin";
/// The cluster and the context in it.
const CLUSTER: &str = "tidepool";
/// Bytes that are read of a file; ours are much smaller.
const LONGEST: u64 = 1 << 20;
/// The timeout to connect to a cluster on this machine.
const LONGEST_CONNECT: Duration = Duration::from_millis(300);

/// Fails if a running cluster uses this kubeconfig: replacing the file would make that cluster unreachable.
pub(crate) async fn check_free(path: &Path) -> anyhow::Result<()> {
    let Some(server) = server_in(path) else {
        return Ok(());
    };
    ensure!(
        !answers(&server).await,
        "a cluster is running at {server} with kubeconfig {}; pass another path with --kubeconfig-out, and another port with --port",
        path.display()
    );
    Ok(())
}

/// The server in a file of ours.
fn server_in(path: &Path) -> Option<String> {
    let text = read_regular(path).ok()??;
    let file = Kubeconfig::from_yaml(&text)
        .ok()
        .filter(|_| is_ours(&text))?;
    file.clusters.into_iter().next()?.cluster?.server
}

async fn answers(server: &str) -> bool {
    let uri: Option<http::Uri> = server.parse().ok();
    let Some(address) = uri.as_ref().and_then(http::Uri::authority) else {
        return false;
    };
    let connect = TcpStream::connect(address.as_str());
    matches!(
        tokio::time::timeout(LONGEST_CONNECT, connect).await,
        Ok(Ok(_))
    )
}

fn is_ours(text: &str) -> bool {
    if text.is_empty() || text.starts_with(OURS) {
        return true;
    }
    let Ok(file) = Kubeconfig::from_yaml(text) else {
        return false;
    };
    file.clusters.iter().map(|it| &it.name).eq([CLUSTER])
        && file.contexts.iter().map(|it| &it.name).eq([CLUSTER])
        && file.auth_infos.iter().map(|it| &it.name).eq([USER])
}

/// The text of a regular file; `None` for a pipe or a device, which could block.
fn read_regular(path: &Path) -> io::Result<Option<String>> {
    if !fs::metadata(path)?.is_file() {
        return Ok(None);
    }
    let mut text = Vec::new();
    fs::File::open(path)?.take(LONGEST).read_to_end(&mut text)?;
    Ok(Some(String::from_utf8_lossy(&text).into_owned()))
}

/// Writes the file atomically; only its owner can read it, because it contains a token.
pub(crate) fn write(path: &Path, text: &str) -> anyhow::Result<()> {
    try_write(path, &[OURS, text].concat()).map_err(|error| {
        anyhow!(
            "cannot write the kubeconfig to {}: {error}; pass another path with --kubeconfig-out",
            path.display()
        )
    })
}

#[derive(Deserialize)]
struct Beside {
    /// The address of the scheduler.
    server: String,
    /// The address of the API server.
    cluster: String,
}

/// The file with the address of the cluster's scheduler.
fn beside(kubeconfig: &Path) -> Option<PathBuf> {
    let mut name = kubeconfig.file_name()?.to_owned();
    name.push(".scheduler.yaml");
    Some(kubeconfig.with_file_name(name))
}

/// Records the address of the scheduler of a cluster.
pub(crate) fn write_server(kubeconfig: &Path, server: &str, cluster: &str) -> io::Result<()> {
    let path = beside(kubeconfig).ok_or(io::ErrorKind::IsADirectory)?;
    try_write(
        &path,
        &format!("{OURS}server: {server}\ncluster: {cluster}\n"),
    )
}

fn recorded(kubeconfig: &Path) -> Option<Beside> {
    let text = fs::read_to_string(beside(kubeconfig)?).ok()?;
    serde_saphyr::from_str(&text).ok()
}

/// The recorded address of the scheduler of this cluster. The kubeconfig may have others, too.
pub(crate) fn read_server(kubeconfig: &Path, cluster: &http::Uri) -> Option<String> {
    let recorded = recorded(kubeconfig)?;
    let is_same = recorded.cluster.parse::<http::Uri>().ok()? == *cluster;
    is_same.then_some(recorded.server)
}

/// Whether a scheduler is recorded.
pub(crate) fn has_server(kubeconfig: &Path) -> bool {
    recorded(kubeconfig).is_some()
}

/// Removes the record, unless another process has written a new one.
pub(crate) fn remove_server(kubeconfig: &Path, server: &str) {
    if recorded(kubeconfig).is_some_and(|written| written.server == server)
        && let Some(path) = beside(kubeconfig)
    {
        // A stale record is harmless: the address does not answer.
        let _ = fs::remove_file(path);
    }
}

fn try_write(path: &Path, text: &str) -> io::Result<()> {
    let directory = path
        .parent()
        .filter(|parent| !parent.as_os_str().is_empty());
    if let Some(directory) = directory {
        fs::create_dir_all(directory)?;
    }
    // Writes the target of a link, not the link.
    match fs::canonicalize(path) {
        Ok(path) => replace(&path, text),
        Err(error) if error.kind() == io::ErrorKind::NotFound => rename_into(path, text),
        Err(error) => Err(error),
    }
}

fn replace(path: &Path, text: &str) -> io::Result<()> {
    if fs::metadata(path)?.is_dir() {
        return Err(io::ErrorKind::IsADirectory.into());
    }
    let Some(before) = read_regular(path)? else {
        // A pipe or a device is written to, and not replaced.
        return OpenOptions::new()
            .write(true)
            .open(path)?
            .write_all(text.as_bytes());
    };
    if !is_ours(&before) {
        return Err(io::Error::other(
            "the file exists and was not written by tidepool",
        ));
    }
    rename_into(path, text)
}

/// Writes a temporary file and renames it, so that no reader sees a part of it.
fn rename_into(path: &Path, text: &str) -> io::Result<()> {
    let mut name = path
        .file_name()
        .ok_or(io::ErrorKind::IsADirectory)?
        .to_owned();
    name.push(format!(".{}.new", std::process::id()));
    let temporary = path.with_file_name(name);
    let written = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(&temporary)
        .and_then(|mut file| file.write_all(text.as_bytes()))
        .and_then(|()| fs::rename(&temporary, path));
    if written.is_err() {
        // The first error is the one to report.
        let _ = fs::remove_file(&temporary);
    }
    written
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_path_is_in_the_cache_directory() {
        for (case, cache, home, want) in [
            (
                "cache directory",
                Some("/c"),
                Some("/h"),
                Some("/c/tidepool/kubeconfig"),
            ),
            (
                "home",
                None,
                Some("/h"),
                Some("/h/.cache/tidepool/kubeconfig"),
            ),
            (
                "relative ones do not count",
                Some("c"),
                Some("/h"),
                Some("/h/.cache/tidepool/kubeconfig"),
            ),
            ("neither", None, None, None),
        ] {
            let variable = |name: &str| match name {
                "XDG_CACHE_HOME" => cache.map(OsString::from),
                _ => home.map(OsString::from),
            };
            assert_eq!(
                default_path(variable).ok(),
                want.map(PathBuf::from),
                "{case}"
            );
        }
    }

    #[test]
    fn only_our_own_files_are_replaced() {
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name);
        for (name, before) in [
            ("ours", Some(OURS)),
            ("written anew", Some(&kubectls("https://127.0.0.1:1", ""))),
            ("empty", Some("")),
            ("new/file", None),
        ] {
            if let Some(before) = before {
                fs::write(path(name), before).unwrap();
            }
            write(&path(name), "text").unwrap();
            let written = fs::read_to_string(path(name)).unwrap();
            assert_eq!(written, format!("{OURS}text"), "{name}");
        }
        let more = "- {name: mine, cluster: {server: 'https://10.0.0.1'}}\n";
        for theirs in [
            "clusters: []",
            "rubbish: [",
            &kubectls("https://127.0.0.1:1", more),
        ] {
            fs::write(path("theirs"), theirs).unwrap();
            let error = write(&path("theirs"), "text").unwrap_err().to_string();
            assert!(error.contains("not written by tidepool"), "{error}");
            assert_eq!(fs::read_to_string(path("theirs")).unwrap(), theirs);
        }
    }

    /// Our file after `kubectl config set-context --current --namespace=demo`, and with these clusters too.
    fn kubectls(server: &str, clusters: &str) -> String {
        format!(
            "apiVersion: v1\nclusters:\n- cluster:\n    server: {server}\n  name: tidepool\n{clusters}\
             contexts:\n- context:\n    cluster: tidepool\n    namespace: demo\n    user: admin\n  name: tidepool\n\
             current-context: tidepool\nkind: Config\nusers:\n- name: admin\n  user:\n    token: secret\n"
        )
    }

    #[tokio::test]
    async fn the_kubeconfig_of_a_cluster_that_is_up_is_left_alone() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("config");
        check_free(&path).await.unwrap();
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let server = format!("https://{}", listener.local_addr().unwrap());
        let theirs = kubectls(&server, "- {name: mine, cluster: {}}\n");
        let ours = kubectls(&server, "");
        for (text, free) in [
            (String::new(), true),
            (OURS.to_owned(), true),
            // That will be said when it is written.
            (theirs, true),
            (kubectls("nonsense", ""), true),
            ([OURS, &ours].concat(), false),
            (ours, false),
        ] {
            fs::write(&path, &text).unwrap();
            let checked = check_free(&path).await;
            assert_eq!(checked.is_ok(), free, "{text}");
            if let Err(why) = checked {
                let why = why.to_string();
                assert!(
                    why.contains(&server) && why.contains("--kubeconfig-out"),
                    "{why}"
                );
            }
        }
        drop(listener);
        check_free(&path).await.unwrap();
    }

    #[test]
    fn a_recorded_scheduler_is_found_for_its_own_cluster() {
        let directory = tempfile::tempdir().unwrap();
        let kubeconfig = directory.path().join("config");
        let cluster = http::Uri::from_static("https://127.0.0.1:6440");
        let other = http::Uri::from_static("https://127.0.0.1:6441");
        assert_eq!(read_server(&kubeconfig, &cluster), None);
        for server in ["http://127.0.0.1:1", "https://[::1]:10259"] {
            write_server(&kubeconfig, server, "https://127.0.0.1:6440").unwrap();
            let found = read_server(&kubeconfig, &cluster);
            assert_eq!(found.as_deref(), Some(server));
            assert_eq!(read_server(&kubeconfig, &other), None);
            assert!(has_server(&kubeconfig));
        }
        let beside = directory.path().join("config.scheduler.yaml");
        remove_server(&kubeconfig, "http://127.0.0.1:1");
        assert!(beside.exists(), "it is another's by now");
        remove_server(&kubeconfig, "https://[::1]:10259");
        assert!(!beside.exists());
        fs::write(beside, "rubbish").unwrap();
        assert!(!has_server(&kubeconfig));
    }

    #[test]
    fn links_and_devices_stay_what_they_are() {
        let directory = tempfile::tempdir().unwrap();
        let (link, file) = (directory.path().join("link"), directory.path().join("file"));
        fs::write(&file, OURS).unwrap();
        std::os::unix::fs::symlink(&file, &link).unwrap();
        write(&link, "text").unwrap();
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        assert!(fs::read_to_string(&file).unwrap().ends_with("text"));

        let pipe = directory.path().join("pipe");
        let made = std::process::Command::new("mkfifo").arg(&pipe).status();
        assert!(made.unwrap().success());
        let reader = std::thread::spawn({
            let pipe = pipe.clone();
            move || fs::read_to_string(pipe).unwrap()
        });
        write(&pipe, "text").unwrap();
        assert!(reader.join().unwrap().ends_with("text"));
        assert!(!fs::metadata(&pipe).unwrap().is_file());
    }
}
