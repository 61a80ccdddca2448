//! The text that `up` prints first: addresses, and commands to try.

use std::path::Path;

use super::screen::Frame;
use crate::output::count;

pub(super) struct Welcome<'a> {
    pub(super) url: &'a str,
    pub(super) kubeconfig: &'a Path,
    pub(super) nodes: usize,
    pub(super) demo: bool,
    /// The schedulers that pods can name.
    pub(super) schedulers: &'a [String],
    /// The URL of the score tables, if they are enabled.
    pub(super) scores: Option<String>,
    /// The name of this program, as it was called.
    pub(super) program: &'a str,
}

impl Welcome<'_> {
    pub(super) fn frame(&self) -> Frame {
        let version = env!("CARGO_PKG_VERSION");
        Frame {
            title: format!("tidepool {version}: a Kubernetes API on {}", self.url),
            export: self.export(),
            commands: self.commands(),
            scores: self
                .scores
                .as_ref()
                .map(|url| format!("scores: curl -s {}", shell_word(url))),
            schedulers: self.schedulers.to_vec(),
            program: shell_word(self.program),
        }
    }

    fn export(&self) -> String {
        let kubeconfig = self.kubeconfig.display().to_string();
        format!("export KUBECONFIG={}", shell_word(&kubeconfig))
    }

    fn commands(&self) -> Vec<String> {
        let mut commands = Vec::new();
        if self.nodes == 0 {
            let node = r#"{"apiVersion": "v1", "kind": "Node", "metadata": {"name": "mine"}}"#;
            commands.push(format!("echo '{node}' | kubectl create -f -"));
        }
        commands.push("kubectl get nodes".to_owned());
        if self
            .schedulers
            .iter()
            .any(|name| name == "default-scheduler")
        {
            commands.push("kubectl create deployment web --image=web --replicas=3".to_owned());
        }
        commands.push("kubectl get pods -A -o wide".to_owned());
        if self.demo {
            // More than fits next to the batch pods, which have a lower priority.
            let replicas = 3 * self.nodes;
            commands.push(format!(
                "kubectl -n {} scale deployment storefront --replicas={replicas}",
                local::demo::NAMESPACE
            ));
        }
        commands.push(format!("{} status", shell_word(self.program)));
        commands
    }

    /// The text for output as lines.
    pub(super) fn text(&self) -> String {
        let frame = self.frame();
        let commands = [&frame.export].into_iter().chain(&frame.commands);
        let commands: String = commands.map(|command| format!("  {command}\n")).collect();
        format!(
            "{}, {}\nkubeconfig: {}\n\nIn another terminal:\n{commands}\nThe scheduler places pods of {}. Ctrl-C stops everything.\n",
            frame.title,
            count(self.nodes, "simulated node"),
            self.kubeconfig.display(),
            self.schedulers.join(", ")
        )
    }
}

/// The text as one word of a shell command.
fn shell_word(text: &str) -> String {
    let plain = |c: char| c.is_alphanumeric() || "/._-+:@%".contains(c);
    if !text.is_empty() && text.chars().all(plain) {
        return text.to_owned();
    }
    format!("'{}'", text.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_lists_commands_that_fit_the_cluster() {
        let default = ["default-scheduler".to_owned()];
        let other = ["packing".to_owned()];
        for (nodes, demo, schedulers, in_it, not_in_it) in [
            (0, false, &default, "create -f -", "storefront"),
            (1, true, &default, "1 simulated node\n", "create -f -"),
            (3, true, &default, "--replicas=9", "create -f -"),
            (
                3,
                true,
                &default,
                "places pods of default-scheduler",
                "packing",
            ),
            (
                3,
                false,
                &other,
                "places pods of packing",
                "create deployment",
            ),
        ] {
            let welcome = Welcome {
                url: "https://127.0.0.1:1",
                kubeconfig: Path::new("/my dir/k"),
                nodes,
                demo,
                schedulers,
                scores: None,
                program: "target/release/tidepool",
            };
            let text = welcome.text();
            assert!(text.contains(in_it), "{in_it} is not in {text}");
            assert!(!text.contains(not_in_it), "{not_in_it} is in {text}");
            assert!(text.contains("export KUBECONFIG='/my dir/k'\n"), "{text}");
            assert!(
                text.contains("  target/release/tidepool status\n"),
                "{text}"
            );
        }
    }

    #[test]
    fn printed_commands_can_be_copied() {
        for (path, want) in [
            ("/a/b-c.d", "/a/b-c.d"),
            ("/my dir/x", "'/my dir/x'"),
            ("/it's", r"'/it'\''s'"),
        ] {
            assert_eq!(shell_word(path), want);
        }
    }
}
