//! The commands of the getting-started page and of the README, run as they stand there.

use std::{
    path::Path,
    process::{Command, Stdio},
};

use crate::up::Up;

/// One block of a document, with the language it is marked with.
struct Block<'a> {
    language: &'a str,
    text: &'a str,
}

fn blocks(document: &str) -> Vec<Block<'_>> {
    let fenced = document.split("```").skip(1).step_by(2);
    fenced
        .filter_map(|block| block.split_once('\n'))
        .map(|(language, text)| Block { language, text })
        .collect()
}

/// Where a reader would be: `tidepool`, `kubectl` and `cargo run` work, and `up` runs in another terminal.
fn shell(up: &Up, script: &str, directory: &Path) -> String {
    let prelude = format!(
        "set -e\ntidepool() {{ {} \"$@\"; }}\nkubectl() {{ {} \"$@\"; }}\ncargo() {{ shift 3; tidepool \"$@\"; }}\n",
        up.program().display(),
        up.kubectl_program().display()
    );
    let output = Command::new("sh")
        .arg("-c")
        .arg(prelude + script)
        .current_dir(directory)
        .env_clear()
        .env("PATH", "/usr/bin:/bin")
        .env("HOME", up.home())
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    let (stdout, stderr) = (text(output.stdout), text(output.stderr));
    assert!(output.status.success(), "{script}\n{stdout}\n{stderr}");
    stdout
}

/// The first words of a line: what follows differs from run to run.
fn beginning(line: &str) -> &str {
    line.split_whitespace().next().unwrap_or_default()
}

/// Runs every `sh` block, in one shell each; what a `text` block behind it shows begins as what was printed.
fn follow(document: &str) {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let document = std::fs::read_to_string(root.join(document)).unwrap();
    let up = Up::start(&[]);
    let directory = tempfile::tempdir().unwrap();
    let (mut printed, mut ran) = (None, 0);
    for block in blocks(&document) {
        match block.language {
            "sh" if block.text.starts_with("cargo run --release -- up\n") => {
                assert_eq!(block.text.lines().count(), 1, "it does not end by itself");
            }
            "sh" => {
                let export = "export KUBECONFIG=~/.cache/tidepool/kubeconfig\n";
                printed = Some(shell(&up, &[export, block.text].concat(), directory.path()));
                ran += 1;
            }
            "text" => {
                if let Some(printed) = printed.take() {
                    let shown: Vec<&str> = block.text.lines().map(beginning).collect();
                    let lines: Vec<&str> = printed.lines().map(beginning).collect();
                    let is_there = |word: &&&str| !lines.contains(word);
                    let missing: Vec<_> = shown.iter().filter(is_there).collect();
                    assert!(missing.is_empty(), "{missing:?} are not in:\n{printed}");
                }
            }
            _ => {}
        }
    }
    assert!(ran > 0, "there is nothing to follow");
}

#[test]
fn the_first_five_minutes_work() {
    follow("docs/getting-started.md");
}

#[test]
fn the_readme_works() {
    follow("README.md");
}
