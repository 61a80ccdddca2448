//! The cluster that a command talks to: a kubeconfig, found and read as kubectl does it.

use std::{
    ffi::OsString,
    fmt,
    path::{Path, PathBuf},
};

use kube::{
    Config,
    config::{KubeConfigOptions, Kubeconfig, KubeconfigError},
};

use serde::Serialize;

use crate::{
    exit::{Code, error},
    foreign::one_line,
    kubeconfig,
};

/// Where a kubeconfig comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Source {
    File(PathBuf),
    /// `$KUBECONFIG`, which may name several files.
    Environment,
}

/// A cluster as its kubeconfig names it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Place {
    #[serde(rename = "name")]
    pub(crate) context: String,
    pub(crate) cluster: String,
    pub(crate) server: String,
}

impl Source {
    /// The given file, else `$KUBECONFIG`, else `~/.kube/config`, else the kubeconfig of `tidepool up`. The last one is
    /// used only if there is no other: a cluster of `up` must not answer for another one.
    pub(crate) fn find(
        given: Option<&Path>,
        variable: impl Fn(&str) -> Option<OsString>,
    ) -> Option<Self> {
        if let Some(path) = given {
            return Some(Self::File(path.to_owned()));
        }
        let variable = |name: &str| variable(name).filter(|value| !value.is_empty());
        if variable("KUBECONFIG").is_some() {
            return Some(Self::Environment);
        }
        let home = variable("HOME").map(|home| PathBuf::from(home).join(".kube").join("config"));
        let up = kubeconfig::default_path(variable).ok();
        let mut files = home.into_iter().chain(up);
        files.find(|path| path.is_file()).map(Self::File)
    }

    /// The connection settings and the name of the cluster, in this context or the current one.
    pub(crate) async fn read(&self, context: Option<&str>) -> anyhow::Result<(Config, Place)> {
        let read = match self {
            Self::File(path) => {
                // kube's own error has the path and the cause twice.
                crate::read_input(path)
                    .map_err(|why| error(Code::BadInput, format_args!("{why:#}")))?;
                Kubeconfig::read_from(path)
            }
            Self::Environment => Kubeconfig::from_env().map(Option::unwrap_or_default),
        };
        // The text of each error has that of its cause; an error of YAML has lines of the file, too.
        let unusable = |why: KubeconfigError| {
            let why = why.to_string();
            let why = why.lines().next().unwrap_or_default();
            let text = format!("cannot use kubeconfig {self}: {}", one_line(why));
            error(Code::BadInput, text)
        };
        let file = read.map_err(unusable)?;
        let context = context.map(str::to_owned).or(file.current_context.clone());
        let options = KubeConfigOptions {
            context: context.clone(),
            ..KubeConfigOptions::default()
        };
        let context = context.unwrap_or_default();
        let named = file.contexts.iter().find(|it| it.name == context);
        let cluster = named.and_then(|it| it.context.as_ref());
        let cluster = cluster.map(|it| it.cluster.clone()).unwrap_or_default();
        let config = Config::from_custom_kubeconfig(file, &options).await;
        let config = config.map_err(unusable)?;
        let server = config.cluster_url.to_string();
        let place = Place {
            context,
            cluster,
            server: server.trim_end_matches('/').to_owned(),
        };
        Ok((config, place))
    }

    /// The file, if there is one.
    pub(crate) fn file(&self) -> Option<PathBuf> {
        match self {
            Self::File(path) => Some(path.clone()),
            Self::Environment => std::env::var_os("KUBECONFIG").map(PathBuf::from),
        }
    }
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path) => write!(f, "{}", path.display()),
            Self::Environment => f.write_str("$KUBECONFIG"),
        }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            context,
            cluster,
            server,
        } = self;
        let text = format!("{context}, cluster {cluster} at {server}");
        f.write_str(&one_line(&text))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exit::code_of;

    #[test]
    fn the_first_kubeconfig_counts() {
        let home = tempfile::tempdir().unwrap();
        let file = |path: &str| home.path().join(path);
        let found = |given: Option<&Path>, variable: Option<&str>| {
            Source::find(given, |name| match name {
                "HOME" => Some(home.path().into()),
                "KUBECONFIG" => variable.map(OsString::from),
                _ => None,
            })
        };
        let write = |path: &str| {
            std::fs::create_dir_all(file(path).parent().unwrap()).unwrap();
            std::fs::write(file(path), "").unwrap();
            Some(Source::File(file(path)))
        };
        assert_eq!(found(None, None), None);
        let up = write(".cache/tidepool/kubeconfig");
        assert_eq!(found(None, None), up);
        let home = write(".kube/config");
        assert_eq!(found(None, None), home, "not that of `up`");
        assert_eq!(found(None, Some("")), home);
        assert_eq!(found(None, Some("/a:/b")), Some(Source::Environment));
        let given = Some(Path::new("/c"));
        assert_eq!(found(given, Some("/a")), Some(Source::File("/c".into())));
    }

    const VALID: &str = "\
clusters: [{name: far, cluster: {server: 'https://10.0.0.1:6443/'}}]
users: [{name: me, user: {}}]
contexts: [{name: a, context: {cluster: far, user: me}}, {name: b, context: {cluster: gone}}]
current-context: a
";

    #[tokio::test]
    async fn an_unusable_kubeconfig_is_bad_input() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("config");
        for (text, context, want) in [
            (
                Some(VALID),
                None,
                Ok("a, cluster far at https://10.0.0.1:6443"),
            ),
            (
                Some(VALID),
                Some("b"),
                Err("failed to load the cluster of context: gone"),
            ),
            (
                Some(VALID),
                Some("c"),
                Err("failed to load current context: c"),
            ),
            (
                Some("clusters: 7"),
                None,
                Err("failed to parse kubeconfig YAML"),
            ),
            (Some(""), None, Err("failed to determine current context")),
            (None, None, Err("No such file")),
        ] {
            let _ = std::fs::remove_file(&path);
            if let Some(text) = text {
                std::fs::write(&path, text).unwrap();
            }
            let read = Source::File(path.clone()).read(context).await;
            match (read, want) {
                (Ok((_, place)), Ok(want)) => assert_eq!(place.to_string(), want),
                (Err(why), Err(want)) => {
                    assert_eq!(code_of(&why), Code::BadInput);
                    let why = why.to_string();
                    assert!(why.contains(want) && why.contains("config"), "{why}");
                    assert!(why.matches("No such file").count() <= 1, "{why}");
                    assert_eq!(why.lines().count(), 1, "{why}");
                }
                (read, want) => panic!("{text:?}: {:?}, not {want:?}", read.map(|it| it.1)),
            }
        }
    }
}
