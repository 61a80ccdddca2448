//! `up` on a terminal: it draws a page and restores the terminal.

use std::{
    io::{Read, Write},
    process::{Child, Command, Stdio},
    time::Instant,
};

use crate::PATIENCE;

const ENTER: &str = "\x1b[?1049h";
const LEAVE: &str = "\x1b[?1049l";

/// It ends with the test, and what runs in it ends with its terminal.
struct Script(Child);

impl Drop for Script {
    fn drop(&mut self) {
        // Both fail only when it has ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Runs in a terminal of this size. Types each text once the output since the last one contains what it waits for.
fn in_terminal(size: &str, flags: &str, typing: &[(&str, &str)]) -> String {
    let home = tempfile::tempdir().unwrap();
    let up = format!(
        "stty {size} && exec {} up --port 0 {flags}",
        env!("CARGO_BIN_EXE_tidepool")
    );
    let mut script = Script(
        Command::new("script")
            .args(["--quiet", "--return", "--command", &up, "/dev/null"])
            .env("HOME", home.path())
            .env("TERM", "xterm")
            .env("SHELL", "/bin/sh")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("script(1) gives us a terminal"),
    );
    let mut typed = script.0.stdin.take().unwrap();
    let mut shown = script.0.stdout.take().unwrap();
    let (mut text, mut bytes) = (String::new(), [0; 4096]);
    let (begun, mut seen, mut typing) = (Instant::now(), 0, typing.iter());
    let mut next = typing.next();
    loop {
        let count = shown.read(&mut bytes).unwrap();
        if count == 0 {
            break;
        }
        text.push_str(&String::from_utf8_lossy(&bytes[..count]));
        if let Some((wait_for, keys)) = next
            && text.get(seen..).is_some_and(|new| new.contains(wait_for))
        {
            typed.write_all(keys.as_bytes()).unwrap();
            (seen, next) = (text.len(), typing.next());
        }
        assert!(
            begun.elapsed() < PATIENCE,
            "{next:?} did not appear: {text}"
        );
    }
    let status = script.0.wait().unwrap();
    assert!(status.success(), "{status}: {text}");
    text
}

#[test]
fn up_draws_a_page_and_restores_the_terminal() {
    for (size, wait_for) in [
        ("rows 40 cols 120", "LATEST"),
        ("rows 12 cols 30", "node-002"),
        ("rows 3 cols 10", "cpu:"),
    ] {
        let text = in_terminal(size, "", &[(wait_for, "xyz\x03")]);
        let (before, page) = text.split_once(ENTER).expect("a page of its own");
        let (page, after) = page.rsplit_once(LEAVE).expect("it is left");
        // A busy machine may delay a decision.
        let is_other = |line: &&str| !line.contains("slow scheduling decision");
        let before: Vec<&str> = before.lines().filter(is_other).collect();
        assert!(before.is_empty(), "{size}: {before:?}");
        assert!(page.contains("pods: "), "{size}: {page}");
        assert!(!page.contains("xyz"), "{size}: what is typed is not shown");
        assert!(
            after.trim().starts_with("stopped after "),
            "{size}: {after:?}"
        );
        assert!(!after.contains('\x1b'), "{size}: {after:?}");
    }
}

#[test]
fn the_page_scrolls_and_quits_with_q() {
    let keys = [
        ("node-002", "\x1b[B"),
        ("lines 1 to ", "G"),
        ("lines ", "q"),
    ];
    let text = in_terminal("rows 12 cols 80", "", &keys);
    let (_, after) = text.rsplit_once(LEAVE).expect("it is left");
    assert!(after.trim().starts_with("stopped after "), "{after:?}");
}

#[test]
fn the_kubeconfig_is_shown_whole_and_again_at_the_end() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("k".repeat(70));
    let flags = format!("--kubeconfig-out {} --debug-scores 2", path.display());
    let text = in_terminal("rows 24 cols 80", &flags, &[("LATEST", "q")]);
    let export = format!("export KUBECONFIG={}", path.display());
    let (_, page) = text.split_once(ENTER).unwrap();
    let (page, after) = page.rsplit_once(LEAVE).unwrap();
    let ends = ["\x1b[0m", "\r", "\n", "\x1b[2K", "\x1b[2m"].into_iter();
    let joined = ends.fold(page.to_owned(), |page, end| page.replace(end, ""));
    assert!(joined.contains(&export), "{page}");
    assert!(after.contains(&export), "{after:?}");
    let (_, scores) = page
        .split_once("scores: curl -s 'http://127.0.0.1:")
        .unwrap();
    let (scores, _) = scores.split_once('\r').unwrap();
    assert!(scores.ends_with("/debug/scores?output=table'"), "{scores}");
    assert!(!page.contains("Top2 scores"), "{page}");
}

#[test]
fn a_dumb_terminal_gets_lines() {
    let home = tempfile::tempdir().unwrap();
    let up = format!("{} up --port 0 --for 3s", env!("CARGO_BIN_EXE_tidepool"));
    let output = Command::new("script")
        .args(["--quiet", "--return", "--command", &up, "/dev/null"])
        .env("HOME", home.path())
        .env("TERM", "dumb")
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.contains("placed   demo/"), "{text}");
    assert!(!text.contains('\x1b'), "{text}");
}
