//! Plain HTTP on loopback, enough to talk to etcd, and free ports.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde_json::Value;

/// A port that was free a moment ago. Another process may take it before we do, so the caller
/// must be ready to try again with another one.
pub fn free_port() -> Result<u16> {
    let listener =
        TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("no free port on loopback")?;
    Ok(listener.local_addr()?.port())
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
