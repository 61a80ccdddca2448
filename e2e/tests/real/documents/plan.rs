//! What a reader of a page does, in order, from its blocks.

use super::blocks::{Block, Kind, parse};
use super::mask::{self, Precision};

#[derive(Debug, PartialEq, Eq)]
pub(super) struct Plan {
    /// Files that the page shows, by name.
    pub(super) files: Vec<(String, String)>,
    pub(super) steps: Vec<Step>,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// Commands that end, in one block.
    Run(Run),
    /// A command that runs in another terminal until the end of the page.
    Start {
        line: usize,
        command: String,
        /// The page that it shows on its terminal.
        output: Option<Shown>,
    },
    /// A look at the log of the first of them.
    ReadLog { line: usize, shown: Shown },
}

#[derive(Debug, PartialEq, Eq)]
pub(super) struct Run {
    pub(super) line: usize,
    pub(super) commands: String,
    pub(super) exit_code: i32,
    /// What the page shows below them.
    pub(super) output: Option<Shown>,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) struct Shown {
    text: String,
    precision: Precision,
    /// The beginnings of lines that differ in every run.
    varying: Vec<String>,
}

impl Shown {
    fn of(block: &Block) -> Self {
        let precision = match block.is_exact() {
            true => Precision::Exact,
            false => Precision::Masked,
        };
        Self {
            text: block.text.clone(),
            precision,
            varying: block.varying(),
        }
    }

    /// The lines of a log, with others between them.
    fn of_log(block: &Block) -> Self {
        let shown = Self::of(block);
        let lines = shown.text.lines().map(|line| format!("...\n{line}\n"));
        let text = lines.chain(["...".to_owned()]).collect();
        Self { text, ..shown }
    }

    /// The first difference from what was printed, or none.
    pub(super) fn difference(&self, printed: &str) -> Option<String> {
        mask::difference(&self.text, printed, self.precision, &self.varying)
    }
}

impl Run {
    /// Whether it only looks, so that it can be repeated until the cluster is where the page says.
    pub(super) fn only_looks(&self) -> bool {
        let lines = self.commands.lines().map(str::trim);
        let mut commands =
            lines.filter(|line| !line.is_empty() && !line.starts_with(['#', '-', '|']));
        commands.all(|line| {
            let mut words = line.split_whitespace();
            match words.next() {
                Some("export") => true,
                Some("kubectl" | "tidepool") => {
                    words.any(|word| LOOKS.contains(&word)) && !line.contains("| kubectl")
                }
                Some("cargo") => line.contains("-- explain") || line.contains("-- status"),
                _ => false,
            }
        })
    }
}

/// What a text is below of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Above {
    Nothing,
    NotRun,
    LastStep,
}

/// Subcommands that change nothing.
const LOOKS: &[&str] = &[
    "get",
    "describe",
    "top",
    "explain",
    "status",
    "debug",
    "schedulers",
];

/// Commands of `tidepool` that run until they are stopped, unless one of these flags is given.
const ENDLESS: &[&str] = &[
    "up",
    "scheduler",
    "controllers",
    "webhook",
    "gate",
    "agent",
    "nodes",
];
const ENDING_FLAGS: &[&str] = &["--help", "--print-manifests", "--restore", "--for"];

impl Plan {
    /// Or what the page lacks: one message per block.
    pub(super) fn of(document: &str) -> Result<Self, Vec<String>> {
        let blocks = parse(document)?;
        let mut plan = Self {
            files: Vec::new(),
            steps: Vec::new(),
        };
        let mut problems = Vec::new();
        let mut above = Above::Nothing;
        for block in &blocks {
            match block.kind {
                Kind::Source => {}
                Kind::File => {
                    problems.extend(not_yaml(block));
                    plan.files.extend(file(block));
                }
                Kind::Commands => {
                    above = Above::NotRun;
                    if block.exempt().is_none() {
                        above = Above::LastStep;
                        match step(block) {
                            Ok(step) => plan.steps.push(step),
                            Err(problem) => problems.push(problem),
                        }
                    }
                }
                Kind::Output if block.is_log() => plan.steps.push(Step::ReadLog {
                    line: block.line,
                    shown: Shown::of_log(block),
                }),
                Kind::Output => {
                    let above = std::mem::replace(&mut above, Above::Nothing);
                    if block.exempt().is_none() && above != Above::NotRun {
                        problems.extend(plan.show(block, above).err());
                    }
                }
            }
        }
        match problems.is_empty() {
            true => Ok(plan),
            false => Err(problems),
        }
    }

    fn show(&mut self, block: &Block, above: Above) -> Result<(), String> {
        let line = block.line;
        let last = self.steps.last_mut();
        let output = match last.filter(|_| above == Above::LastStep) {
            Some(Step::Run(run)) => &mut run.output,
            Some(Step::Start { output, .. }) => output,
            Some(Step::ReadLog { .. }) | None => {
                return Err(format!(
                    "line {line}: this text is not below commands; mark it as `not compared` with a reason"
                ));
            }
        };
        *output = Some(Shown::of(block));
        Ok(())
    }

    /// Whether it begins a cluster of its own.
    pub(super) fn has_cluster(&self) -> bool {
        let is_up = |step: &Step| matches!(step, Step::Start { command, .. } if is_tidepool(command, &["up"]));
        self.steps.iter().any(is_up)
    }

    /// Whether it needs one from elsewhere.
    pub(super) fn needs_cluster(&self) -> bool {
        let talks = |step: &Step| match step {
            Step::Start { .. } => true,
            Step::Run(run) => run.commands.contains("kubectl "),
            Step::ReadLog { .. } => false,
        };
        !self.has_cluster() && self.steps.iter().any(talks)
    }
}

fn not_yaml(block: &Block) -> Option<String> {
    let parsed = serde_saphyr::from_multiple::<serde_json::Value>(&block.text);
    let error = parsed.err()?;
    Some(format!("line {}: {error}", block.line))
}

/// The file that a block shows, if it begins with a name.
fn file(block: &Block) -> Option<(String, String)> {
    let name = block.text.lines().next()?.strip_prefix("# ")?;
    let is_name = name.ends_with(".yaml") && !name.contains([' ', '/']);
    is_name.then(|| (name.to_owned(), block.text.clone()))
}

fn step(block: &Block) -> Result<Step, String> {
    let line = block.line;
    let commands: Vec<&str> = block.text.lines().filter(|line| !line.is_empty()).collect();
    if commands.is_empty() {
        return Err(format!("line {line}: the block has no commands"));
    }
    match commands.iter().find(|it| is_tidepool(it, ENDLESS)) {
        None => Ok(Step::Run(Run {
            line,
            commands: block.text.clone(),
            exit_code: block.exit_code(),
            output: None,
        })),
        Some(command) if commands.len() == 1 => Ok(Step::Start {
            line,
            command: command.to_string(),
            output: None,
        }),
        Some(command) => Err(format!(
            "line {line}: `{command}` does not end by itself; the commands after it need a block of their own"
        )),
    }
}

/// Whether it starts one of these commands of ours, and leaves it running.
fn is_tidepool(command: &str, names: &[&str]) -> bool {
    let command = command.split(" # ").next().unwrap_or_default();
    let command = command.replace("cargo run --release --", "tidepool");
    let words: Vec<&str> = command.split_whitespace().collect();
    let [program, name, ..] = words[..] else {
        return false;
    };
    let ends = words.iter().any(|word| ENDING_FLAGS.contains(word));
    program == "tidepool" && names.contains(&name) && !ends
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problems(document: &str) -> Vec<String> {
        Plan::of(document).unwrap_err()
    }

    #[test]
    fn commands_have_the_output_below_them() {
        let document = "```sh\ntidepool up --empty\n```\n```yaml\n# a.yaml\na: 1\n```\n```sh\nkubectl get nodes\n```\nprose\n<!-- exact -->\n```text\nNAME\n```\n<!-- not run: it builds an image -->\n```sh\ndocker build .\n```\n```text\nok\n```\n<!-- exit code 1 -->\n```sh\nfalse\n```\n";
        let plan = Plan::of(document).unwrap();
        let file = ("a.yaml".to_owned(), "# a.yaml\na: 1\n".to_owned());
        assert_eq!(plan.files, [file]);
        let [start, Step::Run(first), Step::Run(second)] = &plan.steps[..] else {
            panic!("{plan:?}");
        };
        let started = Step::Start {
            line: 1,
            command: "tidepool up --empty".to_owned(),
            output: None,
        };
        assert_eq!(*start, started);
        let shown = first.output.as_ref().unwrap();
        assert_eq!(
            (&shown.text[..], shown.precision),
            ("NAME\n", Precision::Exact)
        );
        assert!(first.only_looks());
        assert_eq!((second.exit_code, &second.output), (1, &None));
        assert!(plan.has_cluster() && !plan.needs_cluster());
    }

    #[test]
    fn a_page_that_neither_runs_nor_explains_is_refused() {
        let commands = "```sh\ntidepool sim run a.yaml\n```\n";
        assert_eq!(Plan::of(commands).unwrap().steps.len(), 1);
        let lonely = "this text is not below commands";
        for (document, want) in [
            ("```text\nx\n```\n", lonely),
            ("```sh\nls\n```\n```text\nx\n```\n```text\ny\n```\n", lonely),
            (
                "<!-- not run: it takes an hour -->\n```sh\nls\n```\n```text\nx\n```\n```text\ny\n```\n",
                lonely,
            ),
            ("```sh\n\n```\n", "the block has no commands"),
            ("a\n```yaml\na: [1\n```\n", "line 2: "),
            (
                "```sh\ntidepool up\nkubectl get nodes\n```\n",
                "`tidepool up` does not end by itself",
            ),
            ("```\ntidepool up\n```\n", "the language of a block is ``"),
        ] {
            let problems = problems(document);
            assert_eq!(problems.len(), 1, "{document}: {problems:?}");
            assert!(problems[0].contains(want), "{document}: {problems:?}");
        }
    }

    #[test]
    fn lines_of_a_log_may_have_others_between_them() {
        let document =
            "```sh\ntidepool nodes\n```\n<!-- log -->\n```text\nINFO bind pod a\nINFO end\n```\n";
        let plan = Plan::of(document).unwrap();
        let [Step::Start { .. }, Step::ReadLog { line: 5, shown }] = &plan.steps[..] else {
            panic!("{plan:?}");
        };
        for (log, is_there) in [
            ("begin\nINFO bind pod a\nmore\nINFO end\nmore\n", true),
            ("INFO bind pod a\nINFO end\n", true),
            ("INFO end\nINFO bind pod a\n", false),
            ("INFO bind pod b\nINFO end\n", false),
        ] {
            assert_eq!(shown.difference(log).is_none(), is_there, "{log}");
        }
        assert!(plan.needs_cluster());
    }

    #[test]
    fn commands_that_run_until_they_are_stopped_are_known() {
        for (command, is_endless) in [
            ("tidepool up", true),
            ("cargo run --release -- up", true),
            (
                "tidepool nodes --kubeconfig ~/.kube/config --nodes 100",
                true,
            ),
            (
                "tidepool scheduler --print-manifests | kubectl apply -f -",
                false,
            ),
            ("tidepool scheduler --help", false),
            ("cargo run --release -- explain pod a", false),
            ("tidepool status # of up", false),
            ("kubectl get nodes", false),
        ] {
            assert_eq!(is_tidepool(command, ENDLESS), is_endless, "{command}");
        }
    }

    #[test]
    fn commands_that_only_look_can_be_repeated() {
        for (commands, looks) in [
            (
                "kubectl -n demo get deployments,jobs\ntidepool status\n",
                true,
            ),
            (
                "export A=b\nkubectl get pods -l app=web \\\n  -o wide\n",
                true,
            ),
            (
                "tidepool explain $(kubectl get pods -o name | head -1) --scores\n",
                true,
            ),
            (
                "kubectl create deployment web --image=web\nkubectl get pods\n",
                false,
            ),
            ("tidepool sim run a.yaml\n", false),
            ("sed s/a/b/ a.yaml | kubectl apply -f -\n", false),
            (
                "tidepool scheduler --print-manifests --scheduler-name get | kubectl apply -f -\n",
                false,
            ),
        ] {
            let run = Run {
                line: 1,
                commands: commands.to_owned(),
                exit_code: 0,
                output: None,
            };
            assert_eq!(run.only_looks(), looks, "{commands}");
        }
    }
}
