//! Plain HTTP on loopback, enough to talk to etcd, and free ports.

use std::hash::{BuildHasher, RandomState};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde_json::Value;

/// The lowest port that a test asks for; below are the ports of well-known services.
const LOWEST_PORT: u16 = 10_000;
/// Where the kernel's ports for outgoing connections begin, if it does not say.
const USUAL_EPHEMERAL: u16 = 32_768;

/// A port that was free a moment ago, and that no call before returned. Another process may take it before we do, so the caller
/// must be ready to try again with another one.
///
/// The kernel gives it to no outgoing connection: those would take it while a server that listens there is restarted.
pub fn free_port() -> Result<u16> {
    static NEXT: OnceLock<AtomicU16> = OnceLock::new();
    let end = first_ephemeral();
    let count = end.saturating_sub(LOWEST_PORT).max(1);
    // Processes that run at the same time begin at different places.
    let random = || AtomicU16::new(RandomState::new().hash_one(std::process::id()) as u16);
    for _ in 0..count {
        let step = NEXT.get_or_init(random).fetch_add(1, Ordering::Relaxed);
        let port = LOWEST_PORT + step % count;
        if TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok() {
            return Ok(port);
        }
    }
    bail!("no free port on loopback from {LOWEST_PORT} to {end}")
}

fn first_ephemeral() -> u16 {
    let range = std::fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range");
    let first = range.ok().and_then(|range| {
        let first = range.split_whitespace().next()?;
        first.parse().ok()
    });
    first
        .filter(|it| *it > LOWEST_PORT)
        .unwrap_or(USUAL_EPHEMERAL)
}

/// One request whose JSON answer must be a success.
pub(crate) fn post(port: u16, path: &str, body: &Value) -> Result<Value> {
    let mut stream = send(port, path, body)?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    let (head, body) = answer
        .split_once("\r\n\r\n")
        .context("the answer has no body")?;
    let status = head.lines().next().unwrap_or_default();
    if status.split(' ').nth(1) != Some("200") {
        bail!(
            "POST {path} on port {port} answered {status}: {}",
            body.trim()
        );
    }
    serde_json::from_str(body)
        .with_context(|| format!("POST {path} on port {port} answered no JSON: {body}"))
}

/// One request whose answer is a stream of lines of JSON, until a line is the last.
pub(crate) fn post_lines(
    port: u16,
    path: &str,
    body: &Value,
    mut is_last: impl FnMut(Value) -> Result<bool>,
) -> Result<()> {
    let mut lines = BufReader::new(send(port, path, body)?).lines();
    let status = lines.next().context("no answer")??;
    if status.split(' ').nth(1) != Some("200") {
        bail!("POST {path} on port {port} answered {status}");
    }
    for line in lines.skip_while(|line| line.as_ref().is_ok_and(|line| !line.is_empty())) {
        let line = line?;
        if line.is_empty() {
            continue;
        }
        let line = serde_json::from_str(&line)
            .with_context(|| format!("POST {path} on port {port} answered no JSON: {line}"))?;
        if is_last(line)? {
            return Ok(());
        }
    }
    bail!("POST {path} on port {port} ended early")
}

fn send(port: u16, path: &str, body: &Value) -> Result<TcpStream> {
    let body = body.to_string();
    let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
    stream.set_read_timeout(Some(Duration::from_secs(10)))?;
    write!(
        stream,
        "POST {path} HTTP/1.0\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    )?;
    Ok(stream)
}
