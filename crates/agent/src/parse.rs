//! Parsers of files below `/proc` and `/sys`.
//!
//! They take bytes, because a file may contain anything, and return `None` for what they do not understand. They never panic and
//! allocate no more than the file's size.

use std::time::Duration;

use engine::node::{Bytes, CpuSet, Stall};

/// The digits of a number, with white space around them.
pub fn number(text: &[u8]) -> Option<u64> {
    let digits = text.trim_ascii();
    let is_number = !digits.is_empty() && digits.iter().all(u8::is_ascii_digit);
    // Digits are UTF-8.
    is_number.then(|| std::str::from_utf8(digits).ok()?.parse().ok())?
}

/// The number behind a key, in lines such as `usage_usec 12`.
pub fn flat(text: &[u8], key: &str) -> Option<u64> {
    let line =
        lines(text).find_map(|line| line.strip_prefix(key.as_bytes())?.strip_prefix(b" "))?;
    number(line)
}

/// A size in lines such as `MemFree: 12 kB`; those of a NUMA node begin with `Node 0 `.
pub fn meminfo(text: &[u8], key: &str) -> Option<Bytes> {
    let line = lines(text).find_map(|line| {
        let mut words = words(line);
        let mut word = words.next()?;
        if word == b"Node" {
            word = words.nth(1)?;
        }
        (word.strip_suffix(b":")? == key.as_bytes()).then_some(words)
    });
    let mut line = line?;
    let size = number(line.next()?)?;
    let factor = match line.next() {
        None => 1,
        Some(b"kB") => 1024,
        Some(_) => return None,
    };
    size.checked_mul(factor).map(Bytes)
}

/// Averages of ten seconds: `some avg10=1.50 avg60=...` and `full avg10=...`; old kernels have no `full` for CPU.
pub fn pressure(text: &[u8]) -> Option<Stall> {
    let average = |kind: &str| {
        let line =
            lines(text).find_map(|line| line.strip_prefix(kind.as_bytes())?.strip_prefix(b" "))?;
        let average = words(line).find_map(|word| word.strip_prefix(b"avg10="))?;
        percent(average)
    };
    Some(Stall {
        some: average("some")?,
        full: average("full").unwrap_or(0.0),
    })
}

/// The distances of a NUMA node, such as `10 20`. The kernel knows no more than 1024 nodes.
pub fn distances(text: &[u8]) -> Option<Vec<u32>> {
    const MOST: usize = 1024;
    let distances: Option<Vec<u32>> = words(text.trim_ascii())
        .take(MOST)
        .map(|word| u32::try_from(number(word)?).ok())
        .collect();
    distances.filter(|distances| !distances.is_empty())
}

/// Load averages of one, five and fifteen minutes.
pub fn load(text: &[u8]) -> Option<[f64; 3]> {
    let mut words = words(text);
    let mut next = || decimal(words.next()?);
    Some([next()?, next()?, next()?])
}

/// The values of a line by NUMA node: `anon N0=12 N1=34`, and on cgroup v1 `anon=46 N0=12 N1=34`.
pub fn numa(text: &[u8], key: &str) -> Option<Vec<(u32, u64)>> {
    let rest = lines(text).find_map(|line| {
        let rest = line.strip_prefix(key.as_bytes())?;
        matches!(rest.first(), Some(b' ' | b'=')).then_some(rest)
    })?;
    let values = words(rest).filter_map(|word| word.strip_prefix(b"N"));
    values
        .map(|value| {
            let split = value.iter().position(|&byte| byte == b'=')?;
            let node = u32::try_from(number(&value[..split])?).ok()?;
            Some((node, number(&value[split + 1..])?))
        })
        .collect()
}

/// The time of one CPU, in clock ticks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CpuTicks {
    pub busy: u64,
    pub idle: u64,
}

/// The time of each CPU, from `/proc/stat`.
pub fn cpu_ticks(text: &[u8]) -> Vec<(u32, CpuTicks)> {
    let cpus = lines(text).filter_map(|line| {
        let mut words = words(line);
        let cpu = number(words.next()?.strip_prefix(b"cpu")?)?;
        let mut total = CpuTicks::default();
        // user, nice, system, idle, iowait, irq, softirq, steal; the time of guests is in user and nice already.
        for (column, word) in words.take(8).enumerate() {
            let part = match column {
                3 | 4 => &mut total.idle,
                _ => &mut total.busy,
            };
            *part = part.checked_add(number(word)?)?;
        }
        Some((u32::try_from(cpu).ok()?, total))
    });
    cpus.collect()
}

/// The time since the machine started, from `/proc/uptime`.
pub fn uptime(text: &[u8]) -> Option<Duration> {
    Duration::try_from_secs_f64(decimal(words(text).next()?)?).ok()
}

/// A list of CPUs or NUMA nodes such as `0-3,8`.
pub fn cpu_list(text: &[u8]) -> Option<CpuSet> {
    CpuSet::parse(std::str::from_utf8(text).ok()?)
}

fn percent(text: &[u8]) -> Option<f64> {
    decimal(text).filter(|&value| value <= 100.0)
}

/// A number such as `1.50`; nothing else that Rust reads as one.
fn decimal(text: &[u8]) -> Option<f64> {
    let is_decimal = text
        .iter()
        .all(|&byte| byte.is_ascii_digit() || byte == b'.');
    is_decimal.then(|| std::str::from_utf8(text).ok()?.parse().ok())?
}

fn lines(text: &[u8]) -> impl Iterator<Item = &[u8]> {
    text.split(|&byte| byte == b'\n')
}

fn words(line: &[u8]) -> impl Iterator<Item = &[u8]> {
    line.split(u8::is_ascii_whitespace)
        .filter(|word| !word.is_empty())
}
