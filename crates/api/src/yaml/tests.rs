use std::collections::BTreeMap;

use serde::Deserialize;

use super::*;

const TEXT: &str =
    "a: 1\nb:\n  - x: 1\n    y:\n      z: [1, 2]\n  - {}\nc:\n  example.com/gpu:\n    weight: 1\n";

#[test]
fn lines_of_paths() {
    for (path, want) in [
        ("a", 1),
        ("b", 2),
        ("b[0]", 3),
        ("b[0].y", 4),
        ("b[0].y.z[1]", 5),
        ("b[1]", 6),
        ("b[1].missing.deeper", 6),
        ("b[7]", 2),
        ("a.x", 1),
        ("c.example.com/gpu.weight", 9),
        ("c.example.com/gpu.type", 8),
        ("c.example", 7),
        ("b[0].y.z[1][odd key]", 5),
    ] {
        assert_eq!(line(TEXT, path), Some(want), "{path}");
    }
    assert_eq!(line(TEXT, "missing"), None);
    assert_eq!(line("a: [", "a"), None);
}

#[derive(Debug, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Small {
    size: u8,
    name: String,
    on: bool,
    share: f32,
    parts: Vec<Part>,
    labels: BTreeMap<String, Option<String>>,
}

#[derive(Debug, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Part {
    name: String,
    count: Option<i32>,
}

fn faults(text: &str) -> Vec<String> {
    let (_, findings) = decode::<Small>(text);
    findings.iter().map(ToString::to_string).collect()
}

#[test]
fn what_is_written_is_read() {
    let text = "size: 4.0\nname: yes\non: true\nshare: 1\nparts: [{name: a, count: null}, null]\nlabels: {a: null}\n";
    let want = Small {
        size: 4,
        name: "yes".to_owned(),
        on: true,
        share: 1.0,
        parts: vec![
            Part {
                name: "a".to_owned(),
                count: None,
            },
            Part::default(),
        ],
        labels: [("a".to_owned(), None)].into(),
    };
    assert_eq!(decode::<Small>(text), (Some(want), vec![]));
    assert_eq!(
        decode("size: null\nparts: null\n"),
        (Some(Small::default()), vec![])
    );
}

#[test]
fn every_fault_with_its_line_and_field() {
    let text = "\
size: \"4\"
name: 5
on: \"true\"
siez: 1
parts:
- name: [a]
- 7
- count: 3000000000
  name: good
- cuont: 1
labels:
  a: 1
share: much
";
    assert_eq!(
        faults(text),
        [
            "line 1: size: found the text \"4\": only a whole number is allowed",
            "line 2: name: found the number 5: only text (numbers, and true and false, in quotes) is allowed",
            "line 3: on: found the text \"true\": only true or false is allowed",
            "line 4: siez: unknown field `siez`, did you mean `size`?",
            "line 6: parts[0].name: found a list: only text (numbers, and true and false, in quotes) is allowed",
            "line 7: parts[1]: found the number 7: only a map of fields is allowed",
            "line 8: parts[2].count: found the number 3000000000: only a whole number from -2147483648 to 2147483647 \
             is allowed",
            "line 10: parts[3].cuont: unknown field `cuont`, did you mean `count`?",
            "line 12: labels.a: found the number 1: only text (numbers, and true and false, in quotes) is allowed",
            "line 13: share: found the text \"much\": only a number is allowed",
        ]
    );
}

#[test]
fn texts_that_are_no_document() {
    for (text, want) in [
        ("size: 1\nsize: 2\n", "line 2: size: duplicate key `size`"),
        (
            "size: 1\n---\nsize: 2\n",
            "line 3: found several documents: only one is allowed",
        ),
        ("", "the file is empty"),
        (
            "name: &a [*a]\n",
            "line 1: found an alias that contains itself",
        ),
        (
            "size: .inf\n",
            "line 1: found `.inf`: only finite numbers are allowed",
        ),
        (
            "? [a]\n: 1\n",
            "line 1: found a list or a map as a key: only text is allowed",
        ),
        (
            "5",
            "line 1: found the number 5: only a map of fields is allowed",
        ),
    ] {
        assert_eq!(faults(text), [want], "{text:?}");
    }
    let deep = format!("name: {}{}\n", "[".repeat(100), "]".repeat(100));
    assert_eq!(
        faults(&deep),
        ["line 1: found 33 levels of lists and maps: only 32 are allowed"]
    );
    assert_eq!(
        faults("size: 1\nsize: 2\nparts: [{name: a, name: b}]\nname: 1\n").len(),
        3,
        "duplicate keys do not hide other faults"
    );
}

#[test]
fn faults_are_counted_only_so_far() {
    let many: String = (0..200).map(|i| format!("wrong{i}: 1\n")).collect();
    assert_eq!(faults(&many).len(), MOST_FAULTS);
}

#[test]
fn as_compilers_write_it() {
    let finding = Finding {
        line: Some(3),
        field: "a.b".to_owned(),
        text: "is wrong".to_owned(),
    };
    assert_eq!(
        finding.in_file("f.yaml", "error"),
        "f.yaml:3: error: a.b: is wrong"
    );
}

#[test]
fn only_close_names_are_suggested() {
    let known = ["cpu", "memory", "name", "on"];
    let all = "; known: cpu, memory, name, on";
    for (found, want) in [
        ("CPU", ", did you mean `cpu`?"),
        ("cpus", ", did you mean `cpu`?"),
        ("cup", ", did you mean `cpu`?"),
        ("nmae", ", did you mean `name`?"),
        ("memroy", ", did you mean `memory`?"),
        // Two changes make any short name out of any other.
        ("gpus", all),
        ("at", all),
        ("no", all),
        ("x", all),
        ("namespaces", all),
    ] {
        assert_eq!(suggest(found, known), want, "{found}");
    }
}
