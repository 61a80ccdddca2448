//! The fenced blocks of a document, and the marks before them.
//!
//! A mark is an HTML comment on a line of its own, directly before the block; readers do not see it:
//!
//! | mark | meaning |
//! |---|---|
//! | `<!-- not run: REASON -->` | the commands do not run in the test |
//! | `<!-- not compared: REASON -->` | the text is not the output of commands that ran; below commands that do not run, it needs no mark |
//! | `<!-- log -->` | the lines are in the log of the first command that the page starts and leaves running |
//! | `<!-- exact -->` | the output has the same numbers in every run |
//! | `<!-- varies: BEGINNING -->` | of a line that begins so, the rest may be any text, and there may be any number of them |
//! | `<!-- exit code N -->` | the commands end with this code, not with 0 |

/// What the language of a block says about it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// `sh`: commands of the reader.
    Commands,
    /// `text`: what they print.
    Output,
    /// `yaml`: a file, if it begins with its name, as in `# gpu.yaml`; or a part of one.
    File,
    /// `rust`: other tests compare it with the sources.
    Source,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Mark {
    NotRun(String),
    NotCompared(String),
    Log,
    Exact,
    Varies(String),
    ExitCode(i32),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Block {
    /// The line of its opening fence.
    pub(super) line: usize,
    pub(super) kind: Kind,
    pub(super) marks: Vec<Mark>,
    /// Without the indentation of its fence.
    pub(super) text: String,
}

impl Block {
    /// The reason why it is not run or compared.
    pub(super) fn exempt(&self) -> Option<&str> {
        self.marks.iter().find_map(|mark| match mark {
            Mark::NotRun(reason) | Mark::NotCompared(reason) => Some(&reason[..]),
            Mark::Log | Mark::Exact | Mark::Varies(_) | Mark::ExitCode(_) => None,
        })
    }

    pub(super) fn is_log(&self) -> bool {
        self.marks.contains(&Mark::Log)
    }

    pub(super) fn is_exact(&self) -> bool {
        self.marks.contains(&Mark::Exact)
    }

    /// The beginnings of lines that differ in every run.
    pub(super) fn varying(&self) -> Vec<String> {
        let beginnings = self.marks.iter().filter_map(|mark| match mark {
            Mark::Varies(beginning) => Some(beginning.clone()),
            _ => None,
        });
        beginnings.collect()
    }

    pub(super) fn exit_code(&self) -> i32 {
        let code = self.marks.iter().find_map(|mark| match mark {
            Mark::ExitCode(code) => Some(*code),
            _ => None,
        });
        code.unwrap_or(0)
    }
}

const FENCE: &str = "```";

/// All blocks, or what is wrong with the document: one message per line that is wrong.
pub(super) fn parse(document: &str) -> Result<Vec<Block>, Vec<String>> {
    let (mut blocks, mut problems) = (Vec::new(), Vec::new());
    let mut marks = Vec::new();
    let mut lines = document.lines().enumerate();
    while let Some((index, line)) = lines.next() {
        let number = index + 1;
        let trimmed = line.trim_start();
        if let Some(language) = trimmed.strip_prefix(FENCE) {
            let indentation = line.len() - trimmed.len();
            let Some(text) = body(&mut lines, indentation) else {
                problems.push(format!("line {number}: the block has no end"));
                break;
            };
            match kind(language) {
                Ok(kind) => blocks.push(Block {
                    line: number,
                    kind,
                    marks: std::mem::take(&mut marks),
                    text,
                }),
                Err(problem) => problems.push(format!("line {number}: {problem}")),
            }
            marks.clear();
        } else if let Some(words) = comment(trimmed) {
            match mark(words) {
                Ok(mark) => marks.extend(mark),
                Err(problem) => problems.push(format!("line {number}: {problem}")),
            }
        } else if !marks.is_empty() {
            problems.push(format!(
                "line {number}: a block must follow the mark before this line"
            ));
            marks.clear();
        }
    }
    if !marks.is_empty() {
        problems.push("a block must follow the mark at the end".to_owned());
    }
    problems.extend(blocks.iter().flat_map(misplaced));
    match problems.is_empty() {
        true => Ok(blocks),
        false => Err(problems),
    }
}

/// The lines up to the closing fence.
fn body<'a>(
    lines: &mut impl Iterator<Item = (usize, &'a str)>,
    indentation: usize,
) -> Option<String> {
    let mut text = String::new();
    for (_, line) in lines {
        if line.trim() == FENCE {
            return Some(text);
        }
        let outside = line.len() - line.trim_start().len();
        text.push_str(&line[outside.min(indentation)..]);
        text.push('\n');
    }
    None
}

fn kind(language: &str) -> Result<Kind, String> {
    match language.trim() {
        "sh" => Ok(Kind::Commands),
        "text" => Ok(Kind::Output),
        "yaml" => Ok(Kind::File),
        "rust" => Ok(Kind::Source),
        other => Err(format!(
            "the language of a block is `{other}`; use sh for commands, text for their output, yaml for files or rust"
        )),
    }
}

/// The words of a comment that is alone on its line.
fn comment(line: &str) -> Option<&str> {
    let words = line.trim_end().strip_prefix("<!--")?.strip_suffix("-->")?;
    Some(words.trim())
}

/// The mark that a comment is; other comments are none.
fn mark(words: &str) -> Result<Option<Mark>, String> {
    let (name, rest) = words.split_once(':').unwrap_or((words, ""));
    let text = rest.trim().to_owned();
    let with_text = |mark: fn(String) -> Mark| match text.is_empty() {
        true => Err(format!("`{name}` needs a text after a colon")),
        false => Ok(Some(mark(text.clone()))),
    };
    match name.trim() {
        "not run" => with_text(Mark::NotRun),
        "not compared" => with_text(Mark::NotCompared),
        "varies" => with_text(Mark::Varies),
        "exact" => Ok(Some(Mark::Exact)),
        "log" => Ok(Some(Mark::Log)),
        name => match name.strip_prefix("exit code ") {
            Some(code) => match code.parse() {
                Ok(code) => Ok(Some(Mark::ExitCode(code))),
                Err(_) => Err(format!("`{code}` is not an exit code")),
            },
            None => Ok(None),
        },
    }
}

/// Marks that have no meaning on this kind of block.
fn misplaced(block: &Block) -> Option<String> {
    let fits = |mark: &Mark| match mark {
        Mark::NotRun(_) | Mark::ExitCode(_) => block.kind == Kind::Commands,
        Mark::NotCompared(_) | Mark::Log | Mark::Exact | Mark::Varies(_) => {
            block.kind == Kind::Output
        }
    };
    let wrong = block.marks.iter().find(|mark| !fits(mark))?;
    Some(format!(
        "line {}: {wrong:?} is for another kind of block",
        block.line
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_have_a_line_a_kind_marks_and_text() {
        let document = "# Title\n\n```sh\nls\n```\nprose\n<!-- a comment -->\n\n<!-- exact -->\n```text\na  b\n\n```\n\n1. item\n\n   ```yaml\n   # a.yaml\n   a:\n     b\n   ```\n";
        let blocks = parse(document).unwrap();
        let shown: Vec<(usize, Kind, &[Mark], &str)> = blocks
            .iter()
            .map(|it| (it.line, it.kind, &it.marks[..], &it.text[..]))
            .collect();
        let exact = [Mark::Exact];
        let want = [
            (3, Kind::Commands, &[][..], "ls\n"),
            (10, Kind::Output, &exact[..], "a  b\n\n"),
            (17, Kind::File, &[][..], "# a.yaml\na:\n  b\n"),
        ];
        assert_eq!(shown, want);
    }

    #[test]
    fn marks_are_read() {
        let document = "<!-- not run: it builds an image -->\n<!-- exit code 3 -->\n```sh\ndocker build .\n```\n<!-- not compared: a log -->\n```text\nx\n```\n";
        let blocks = parse(document).unwrap();
        assert_eq!(blocks[0].exempt(), Some("it builds an image"));
        assert_eq!((blocks[0].exit_code(), blocks[0].is_exact()), (3, false));
        assert_eq!(blocks[1].exempt(), Some("a log"));
        assert_eq!(blocks[1].exit_code(), 0);
    }

    #[test]
    fn what_is_wrong_is_named_with_its_line() {
        for (document, want) in [
            ("```\nls\n```\n", "line 1: the language of a block is ``"),
            (
                "a\n```console\nls\n```\n",
                "line 2: the language of a block is `console`",
            ),
            ("```sh\nls\n", "line 1: the block has no end"),
            (
                "<!-- not run: -->\n```sh\nls\n```\n",
                "line 1: `not run` needs a text after a colon",
            ),
            (
                "<!-- not run -->\n```sh\nls\n```\n",
                "line 1: `not run` needs a text after a colon",
            ),
            (
                "<!-- not compared:  -->\n```text\nx\n```\n",
                "line 1: `not compared` needs a text after a colon",
            ),
            (
                "<!-- exit code one -->\n```sh\nls\n```\n",
                "line 1: `one` is not an exit code",
            ),
            (
                "<!-- exact -->\n\n```text\nx\n```\n",
                "line 2: a block must follow",
            ),
            (
                "<!-- exact -->\n",
                "a block must follow the mark at the end",
            ),
            (
                "<!-- exact -->\n```sh\nls\n```\n",
                "line 2: Exact is for another kind of block",
            ),
            (
                "<!-- not run: no -->\n```text\nx\n```\n",
                "line 2: NotRun(\"no\") is for another kind",
            ),
        ] {
            let problems = parse(document).unwrap_err();
            assert_eq!(problems.len(), 1, "{document}: {problems:?}");
            assert!(problems[0].starts_with(want), "{document}: {problems:?}");
        }
    }
}
