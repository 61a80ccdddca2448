//! Plain requests, exactly as written, and their answers.

use std::time::Duration;

use anyhow::Result;
use e2e::Kubeconfig;
use futures::StreamExt as _;
use http_body_util::BodyExt as _;
use serde_json::{Map, Value, json};
use tokio::runtime::Handle;
use tokio::sync::mpsc;
use tokio::time::timeout;

/// Longer than anything a behaviour waits for.
const PATIENCE: Duration = Duration::from_secs(30);

/// Headers that mean something to a client; the others differ from answer to answer.
const COMPARED_HEADERS: [&str; 5] = [
    "content-type",
    "cache-control",
    "warning",
    "retry-after",
    "vary",
];

/// User is asking.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum User {
    Admin,
    WrongToken,
    Anonymous,
}

#[derive(Debug, Clone)]
pub(crate) struct Request {
    pub(crate) method: &'static str,
    pub(crate) path: String,
    pub(crate) headers: Vec<(&'static str, String)>,
    pub(crate) body: Vec<u8>,
    pub(crate) user: User,
}

impl Request {
    pub(crate) fn new(method: &'static str, path: impl Into<String>) -> Self {
        Self {
            method,
            path: path.into(),
            headers: vec![("user-agent", "conformance/1".to_owned())],
            body: Vec::new(),
            user: User::Admin,
        }
    }

    pub(crate) fn get(path: impl Into<String>) -> Self {
        Self::new("GET", path)
    }

    pub(crate) fn post(path: impl Into<String>) -> Self {
        Self::new("POST", path)
    }

    /// Replaces a header of the same name.
    pub(crate) fn header(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.headers.retain(|(other, _)| *other != name);
        self.headers.push((name, value.into()));
        self
    }

    pub(crate) fn json(self, body: &Value) -> Self {
        self.body("application/json", body.to_string())
    }

    pub(crate) fn body(self, content_type: &str, body: impl Into<Vec<u8>>) -> Self {
        let mut request = self.header("content-type", content_type);
        request.body = body.into();
        request
    }

    pub(crate) fn accept(self, accept: &str) -> Self {
        self.header("accept", accept)
    }

    pub(crate) fn user(mut self, user: User) -> Self {
        self.user = user;
        self
    }
}

#[derive(Debug, Clone)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: Map<String, Value>,
    /// JSON and YAML as values, other texts as strings.
    pub(crate) body: Value,
    /// Whether JSON came as one line, which line readers depend on.
    pub(crate) form: &'static str,
}

impl Answer {
    pub(crate) fn at(&self, pointer: &str) -> &Value {
        self.body.pointer(pointer).unwrap_or(&Value::Null)
    }

    pub(crate) fn text(&self, pointer: &str) -> String {
        self.at(pointer).as_str().unwrap_or_default().to_owned()
    }

    pub(crate) fn version(&self) -> String {
        self.text("/metadata/resourceVersion")
    }

    pub(crate) fn uid(&self) -> String {
        self.text("/metadata/uid")
    }

    /// As the transcript keeps it.
    pub(crate) fn record(&self) -> Value {
        json!({"status": self.status, "headers": self.headers, "form": self.form, "body": self.body})
    }

    fn new(status: http::StatusCode, headers: &http::HeaderMap, bytes: &[u8]) -> Self {
        let headers = compared(headers);
        let content_type = headers
            .get("content-type")
            .and_then(Value::as_str)
            .unwrap_or_default();
        let text = String::from_utf8_lossy(bytes);
        let (body, form) = if content_type.starts_with("application/json") {
            let form = match text.strip_suffix('\n') {
                Some(line) if !line.contains('\n') => "one line",
                Some(_) => "several lines",
                None => "no line end",
            };
            match serde_json::from_str(&text) {
                Ok(body) => (body, form),
                Err(_) => (Value::from(text), "broken JSON"),
            }
        } else if content_type.starts_with("application/yaml") {
            match serde_saphyr::from_str(&text) {
                Ok(body) => (body, "YAML"),
                Err(_) => (Value::from(text), "broken YAML"),
            }
        } else {
            (Value::from(text), "text")
        };
        Self {
            status: status.as_u16(),
            headers,
            body,
            form,
        }
    }

    /// No answer at all: a broken connection or a server that does not answer in time.
    fn failure(why: String) -> Self {
        Self {
            status: 0,
            headers: Map::new(),
            body: Value::from(why),
            form: "no answer",
        }
    }
}

/// The head of an open watch and, as they come, its lines.
pub(crate) struct Stream {
    pub(crate) head: Answer,
    lines: mpsc::UnboundedReceiver<Value>,
    runtime: Handle,
}

impl Stream {
    /// The next line, unless the stream ends (`Err(true)`) or the time is up (`Err(false)`).
    pub(crate) fn next(&mut self, patience: Duration) -> Result<Value, bool> {
        let runtime = self.runtime.clone();
        match runtime.block_on(async { timeout(patience, self.lines.recv()).await }) {
            Ok(Some(line)) => Ok(line),
            Ok(None) => Err(true),
            Err(_) => Err(false),
        }
    }
}

/// Connections to one server as each kind of asker. Its methods block.
pub(crate) struct Client {
    pub(crate) runtime: Handle,
    admin: kube::Client,
    wrong_token: kube::Client,
    anonymous: kube::Client,
}

impl Client {
    pub(crate) fn new(runtime: Handle, kubeconfig: &Kubeconfig) -> Result<Self> {
        let connect = |token: Option<&str>| -> Result<kube::Client> {
            let mut config = runtime.block_on(kubeconfig.to_client_config())?;
            config.auth_info.token = token.map(Into::into);
            let _inside = runtime.enter();
            Ok(kube::Client::try_from(config)?)
        };
        Ok(Self {
            admin: connect(Some(&kubeconfig.token))?,
            wrong_token: connect(Some("not-a-token"))?,
            anonymous: connect(None)?,
            runtime,
        })
    }

    pub(crate) fn kube(&self) -> &kube::Client {
        &self.admin
    }

    pub(crate) fn send(&self, request: &Request) -> Answer {
        self.runtime.block_on(async {
            let answer = timeout(PATIENCE, async {
                let response = self.start(request).await?;
                let (head, body) = response.into_parts();
                let bytes = body.collect().await?.to_bytes();
                anyhow::Ok(Answer::new(head.status, &head.headers, &bytes))
            });
            match answer.await {
                Ok(Ok(answer)) => answer,
                Ok(Err(error)) => Answer::failure(format!("{error:#}")),
                Err(_) => Answer::failure(format!("no answer within {} s", PATIENCE.as_secs())),
            }
        })
    }

    /// Opens a watch: returns once the server has answered its head.
    pub(crate) fn stream(&self, request: &Request) -> Stream {
        let (sender, lines) = mpsc::unbounded_channel();
        let started = self
            .runtime
            .block_on(async { timeout(PATIENCE, self.start(request)).await });
        let head = match started {
            Ok(Ok(response)) => {
                let (head, body) = response.into_parts();
                if head.status != http::StatusCode::OK {
                    let bytes = self
                        .runtime
                        .block_on(async { timeout(PATIENCE, body.collect()).await });
                    let bytes = bytes.ok().and_then(Result::ok).map(|body| body.to_bytes());
                    Answer::new(head.status, &head.headers, &bytes.unwrap_or_default())
                } else {
                    self.runtime.spawn(read_lines(body, sender));
                    Answer {
                        status: head.status.as_u16(),
                        headers: compared(&head.headers),
                        body: Value::Null,
                        form: "a stream",
                    }
                }
            }
            Ok(Err(error)) => Answer::failure(format!("{error:#}")),
            Err(_) => Answer::failure(format!("no answer within {} s", PATIENCE.as_secs())),
        };
        Stream {
            head,
            lines,
            runtime: self.runtime.clone(),
        }
    }

    async fn start(&self, request: &Request) -> Result<http::Response<kube::client::Body>> {
        let mut builder = http::Request::builder()
            .method(request.method)
            .uri(&request.path);
        for (name, value) in &request.headers {
            builder = builder.header(*name, value);
        }
        let client = match request.user {
            User::Admin => &self.admin,
            User::WrongToken => &self.wrong_token,
            User::Anonymous => &self.anonymous,
        };
        Ok(client
            .send(builder.body(request.body.clone().into())?)
            .await?)
    }
}

async fn read_lines(body: kube::client::Body, sender: mpsc::UnboundedSender<Value>) {
    let mut chunks = body.into_data_stream();
    let mut buffer = Vec::new();
    while let Some(Ok(chunk)) = chunks.next().await {
        buffer.extend_from_slice(&chunk);
        while let Some(end) = buffer.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = buffer.drain(..=end).collect();
            let value = serde_json::from_slice(&line).unwrap_or_else(|_| {
                Value::from(format!("not JSON: {}", String::from_utf8_lossy(&line)))
            });
            // The receiver is gone: the behaviour is over.
            if sender.send(value).is_err() {
                return;
            }
        }
    }
    if !buffer.is_empty() {
        let rest = format!("an unfinished line: {}", String::from_utf8_lossy(&buffer));
        let _ = sender.send(Value::from(rest));
    }
}

fn compared(headers: &http::HeaderMap) -> Map<String, Value> {
    let mut kept = Map::new();
    for name in COMPARED_HEADERS {
        let values: Vec<&str> = headers
            .get_all(name)
            .iter()
            .filter_map(|value| value.to_str().ok())
            .collect();
        match values.as_slice() {
            [] => (),
            [one] => drop(kept.insert(name.to_owned(), Value::from(*one))),
            many => drop(kept.insert(name.to_owned(), Value::from(many.to_vec()))),
        }
    }
    kept
}
