//! The names of pods on the command line, in the forms of kubectl.

use anyhow::Result;

use crate::exit::{Code, error};

/// The kind in the forms that kubectl accepts.
const KINDS: [&str; 3] = ["pod", "pods", "po"];

#[derive(Debug, PartialEq, Eq)]
pub(super) struct PodName {
    /// `None` for the default namespace.
    pub(super) namespace: Option<String>,
    pub(super) name: String,
}

/// Reads `pod NAME...` or `pod/NAME...`, where each name may have its namespace in front. Accepts only names of
/// Kubernetes, which need no encoding in a path.
pub(super) fn parse(words: &[String], namespace: Option<&str>) -> Result<Vec<PodName>> {
    let (first, rest) = match words {
        [first, rest @ ..] => (&first[..], rest),
        [] => ("", &[][..]),
    };
    let names = match (KINDS.contains(&first), first.split_once('/')) {
        (true, _) if rest.is_empty() => {
            return Err(bad(format!(
                "`{first}` needs the name of a pod, such as `explain {first} web-1`"
            )));
        }
        (true, _) => rest,
        (false, Some((kind, _))) if KINDS.contains(&kind) => words,
        (false, _) => {
            return Err(bad(format!(
                "`{first}` is not a kind that can be explained; use `explain pod NAME`, `explain pod/NAME` or `explain node NAME`"
            )));
        }
    };
    names.iter().map(|word| one(word, namespace)).collect()
}

fn one(word: &str, namespace: Option<&str>) -> Result<PodName> {
    let (own, name) = match word.split_once('/') {
        Some((kind, name)) if KINDS.contains(&kind) => (None, name),
        Some((namespace, name)) => (Some(namespace), name),
        None => (None, word),
    };
    if let (Some(own), Some(given)) = (own, namespace)
        && own != given
    {
        return Err(bad(format!(
            "`{word}` and --namespace {given} have different namespaces: pass one of them"
        )));
    }
    let namespace = own.or(namespace);
    if is_name(name) && namespace.is_none_or(is_name) {
        return Ok(PodName {
            namespace: namespace.map(str::to_owned),
            name: name.to_owned(),
        });
    }
    Err(bad(format!(
        "`{word}` is not a valid pod name; use NAME or NAMESPACE/NAME, such as demo/web-1"
    )))
}

fn is_name(text: &str) -> bool {
    let is_part = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "-.".contains(c);
    !text.is_empty() && text.chars().all(is_part)
}

fn bad(text: String) -> anyhow::Error {
    error(Code::BadInput, text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exit::code_of;

    #[test]
    fn pods_have_names() {
        for (words, namespace, want) in [
            ("pod demo/web-1", None, Ok("demo/web-1")),
            ("pod web.2", None, Ok("-/web.2")),
            ("po web.2", Some("demo"), Ok("demo/web.2")),
            ("pod demo/web-1", Some("demo"), Ok("demo/web-1")),
            ("pods a demo/b", None, Ok("-/a demo/b")),
            ("pod/a", None, Ok("-/a")),
            ("pod/a po/b", Some("demo"), Ok("demo/a demo/b")),
            ("pod pod/a", None, Ok("-/a")),
            ("pod demo/web-1", Some("other"), Err("different namespaces")),
            ("pod web.2", Some("De mo"), Err("not a valid pod name")),
            ("pod demo/", None, Err("not a valid pod name")),
            ("pod /web", None, Err("not a valid pod name")),
            ("pod a/b/c", None, Err("not a valid pod name")),
            ("pod demo/../x", None, Err("not a valid pod name")),
            ("pod demo/Web", None, Err("not a valid pod name")),
            ("pod demo/web?x=1", None, Err("not a valid pod name")),
            ("pod/a web-1", None, Ok("-/a -/web-1")),
            ("pod", None, Err("`pod` needs the name of a pod")),
            ("web-1", None, Err("`web-1` is not a kind")),
            ("demo/web-1", None, Err("`demo/web-1` is not a kind")),
            ("", None, Err("is not a kind")),
        ] {
            let given: Vec<String> = words.split(' ').map(str::to_owned).collect();
            match (parse(&given, namespace), want) {
                (Ok(found), Ok(want)) => {
                    let found: Vec<String> = found
                        .into_iter()
                        .map(|it| format!("{}/{}", it.namespace.as_deref().unwrap_or("-"), it.name))
                        .collect();
                    assert_eq!(found.join(" "), want, "{words}");
                }
                (Err(why), Err(want)) => {
                    assert_eq!(code_of(&why), Code::BadInput);
                    assert!(why.to_string().contains(want), "{words}: {why}");
                }
                (found, want) => panic!("{words}: {found:?}, not {want:?}"),
            }
        }
    }
}
