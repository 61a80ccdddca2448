//! Configurations that kube-scheduler refuses are refused with its messages.

use engine::scheduling::plugins;

use super::{check, v1};
use crate::yaml::Finding;

const CASES: &str = include_str!("../../../testdata/config/refused.txt");

#[test]
fn refused_as_by_kube_scheduler() {
    let cases = CASES.split("===\n").skip(1);
    let (mut seen, mut wrong) = (0, Vec::new());
    for case in cases {
        let (body, said) = case.split_once("---\n").unwrap();
        let found = check(&v1(body), plugins::ALL).errors;
        let said: Vec<&str> = said.lines().collect();
        let is_said = |said: &&str| found.iter().any(|finding| is_same(finding, said));
        let has_lines = found.iter().all(|finding| finding.line.is_some());
        if found.len() != said.len() || !said.iter().all(is_said) || !has_lines {
            let found: Vec<String> = found.iter().map(ToString::to_string).collect();
            wrong.push(format!("{case}ours:\n{}\n", found.join("\n")));
        }
        seen += 1;
    }
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
    assert!(seen > 100, "{seen}");
}

fn is_same(found: &Finding, said: &str) -> bool {
    // It names a type of Go where the field, what was found and what is allowed are of more use.
    if let Some((_, field)) = said.split_once(" into Go struct field ") {
        let field = field
            .split(' ')
            .next()
            .and_then(|path| path.rsplit('.').next());
        let place: String = found.field.split('[').collect::<Vec<_>>().join(".");
        let has_field = place.split(['.', ']']).any(|part| Some(part) == field);
        return has_field && found.text.starts_with("found ");
    }
    if let Some(field) = said.strip_prefix("strict decoding error: unknown field ") {
        return format!("{:?}", found.field) == field && found.text.starts_with("unknown field ");
    }
    let started = said.split_once("creating profile for scheduler name ");
    let said = started
        .and_then(|(_, rest)| rest.split_once(": "))
        .map_or(said, |(_, said)| said);
    let said = said
        .strip_prefix("initializing plugin \"NodeResourcesFit\": ")
        .unwrap_or(said);
    let message = format!("{}: {}", found.field, found.text);
    // Its message is about Go types.
    let better = [
        ("Duplicate value: {}", "Duplicate value: \""),
        (
            "score plugins: total score of Score plugins could overflow",
            "plugin \"ImageLocality\" has weight -1: a weight must not be negative",
        ),
    ];
    let ours = better.iter().find(|(theirs, _)| said.ends_with(theirs));
    match ours {
        Some((_, ours)) => message.contains(ours),
        None => message.ends_with(said),
    }
}
