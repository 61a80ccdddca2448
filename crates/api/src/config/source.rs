//! Finds the configuration in a file: the file itself, or one of the values of a ConfigMap.

use crate::yaml::{Booleans, Finding, Tree};

/// The document with its lines in the text, and its duplicate keys.
pub(super) fn open(text: &str) -> Result<(Tree, Vec<Finding>), Vec<Finding>> {
    let (tree, findings) =
        Tree::parse(text, Booleans::Kubernetes).map_err(|finding| vec![finding])?;
    if tree.text("kind") != Some("ConfigMap") {
        return Ok((tree, findings));
    }
    let (key_line, inner) = wrapped(&tree).map_err(|finding| vec![finding])?;
    let number = numbering(text, key_line, inner);
    let renumbered = |mut finding: Finding| {
        finding.line = finding.line.map(&number);
        finding
    };
    let (mut document, more) =
        Tree::parse(inner, Booleans::Kubernetes).map_err(|finding| vec![renumbered(finding)])?;
    document.renumber(&number);
    let more = more.into_iter().map(renumbered);
    Ok((document, findings.into_iter().chain(more).collect()))
}

/// The value that is a scheduler configuration, with the line of its key.
fn wrapped(tree: &Tree) -> Result<(u64, &str), Finding> {
    let values = tree.texts("data");
    let is_named = |text: &str| text.contains("KubeSchedulerConfiguration");
    let mut named = values.iter().filter(|(_, _, text)| is_named(text));
    let refused = |text: String| Finding {
        line: tree.line("data").or(tree.line("kind")),
        field: "data".to_owned(),
        text,
    };
    let keys = || -> String {
        let keys: Vec<&str> = values.iter().map(|(key, _, _)| *key).collect();
        keys.join(", ")
    };
    match (named.next(), named.next(), &values[..]) {
        (Some((_, line, text)), None, _) | (None, None, [(_, line, text)]) => Ok((*line, text)),
        (Some(_), Some(_), _) => Err(refused(format!(
            "found several scheduler configurations in the ConfigMap ({}): only one is allowed",
            keys()
        ))),
        (_, _, []) => Err(refused(
            "the ConfigMap has no `data`: it must contain a KubeSchedulerConfiguration".to_owned(),
        )),
        _ => Err(refused(format!(
            "found no KubeSchedulerConfiguration among the values of the ConfigMap ({})",
            keys()
        ))),
    }
}

/// Maps lines of the inner text to lines of the outer one. If it is not a block of lines, all map to the line of the key.
fn numbering(text: &str, key_line: u64, inner: &str) -> impl Fn(u64) -> u64 {
    let first = usize::try_from(key_line).unwrap_or(usize::MAX);
    let outer = text.lines().skip(first);
    let is_block = inner.lines().count() <= outer.clone().count()
        && inner
            .lines()
            .zip(outer)
            .all(|(inner, outer)| inner.trim() == outer.trim());
    move |line| if is_block { key_line + line } else { key_line }
}
