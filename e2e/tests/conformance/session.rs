//! One behaviour on one server: sends requests and writes down what came back.

use std::time::{Duration, Instant};

use e2e::transcript::{Step, Transcript};
use e2e::{Kubectl, WebhookServer};
use serde_json::{Value, json};

use crate::client::{Answer, Request, Stream};
use crate::servers::Server;

/// How long an event or a state may take to come.
const SOON: Duration = Duration::from_secs(15);
/// How long silence must last to count as silence.
const SILENCE: Duration = Duration::from_millis(400);

pub(crate) const JSON_PATCH: &str = "application/json-patch+json";
pub(crate) const MERGE_PATCH: &str = "application/merge-patch+json";
pub(crate) const STRATEGIC_PATCH: &str = "application/strategic-merge-patch+json";
pub(crate) const APPLY_PATCH: &str = "application/apply-patch+yaml";

pub(crate) struct Session<'a> {
    server: &'a Server,
    namespace: String,
    transcript: Transcript,
    kubectl: Option<Kubectl>,
}

/// An open watch.
pub(crate) struct Watch {
    path: String,
    stream: Stream,
}

impl<'a> Session<'a> {
    /// Each behaviour has a namespace of its own, named by its id.
    pub(crate) fn new(server: &'a Server, id: &str) -> Self {
        let session = Self {
            server,
            namespace: id.to_lowercase(),
            transcript: Transcript::default(),
            kubectl: None,
        };
        session.make_namespace(&session.namespace);
        session
    }

    /// A namespace in which pods can be made, without comparing how that goes. Its service account
    /// keeps the real server from mounting tokens into every pod.
    pub(crate) fn make_namespace(&self, name: &str) {
        let namespace =
            json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
        // Should this fail, every request after it says so.
        self.server
            .client
            .send(&Request::post("/api/v1/namespaces").json(&namespace));
        self.make_service_account(name, "default");
    }

    pub(crate) fn make_service_account(&self, namespace: &str, name: &str) {
        let account = json!({"metadata": {"name": name}, "automountServiceAccountToken": false});
        let path = format!("/api/v1/namespaces/{namespace}/serviceaccounts");
        self.server.client.send(&Request::post(path).json(&account));
    }

    pub(crate) fn into_transcript(self) -> Transcript {
        self.transcript
    }

    pub(crate) fn server(&self) -> &'a Server {
        self.server
    }

    pub(crate) fn namespace(&self) -> &str {
        &self.namespace
    }

    /// A path of the core group in this behaviour's namespace: `configmaps/a`.
    pub(crate) fn core(&self, rest: &str) -> String {
        format!("/api/v1/namespaces/{}/{rest}", self.namespace)
    }

    /// A path of another group in this behaviour's namespace: `apps/v1`, `deployments/a`.
    pub(crate) fn group(&self, group: &str, rest: &str) -> String {
        format!("/apis/{group}/namespaces/{}/{rest}", self.namespace)
    }

    pub(crate) fn widgets(&self, rest: &str) -> String {
        self.group("conformance.tidepool.io/v1", &format!("widgets{rest}"))
    }

    pub(crate) fn get(&mut self, path: impl Into<String>) -> Answer {
        self.send(Request::get(path))
    }

    pub(crate) fn post(&mut self, path: impl Into<String>, body: &Value) -> Answer {
        self.send(Request::post(path).json(body))
    }

    pub(crate) fn put(&mut self, path: impl Into<String>, body: &Value) -> Answer {
        self.send(Request::new("PUT", path).json(body))
    }

    pub(crate) fn delete(&mut self, path: impl Into<String>) -> Answer {
        self.send(Request::new("DELETE", path))
    }

    pub(crate) fn delete_with(&mut self, path: impl Into<String>, options: &Value) -> Answer {
        self.send(Request::new("DELETE", path).json(options))
    }

    pub(crate) fn patch(
        &mut self,
        content_type: &str,
        path: impl Into<String>,
        body: &Value,
    ) -> Answer {
        self.send(Request::new("PATCH", path).body(content_type, body.to_string()))
    }

    /// Server-side apply as `manager`.
    pub(crate) fn apply(&mut self, path: &str, manager: &str, body: &Value) -> Answer {
        self.patch(APPLY_PATCH, format!("{path}?fieldManager={manager}"), body)
    }

    pub(crate) fn send(&mut self, request: Request) -> Answer {
        let answer = self.server.client.send(&request);
        self.record(describe(&request), sent(&request), answer.record());
        answer
    }

    /// Sends without comparing the answer: where only a part of it is compared.
    pub(crate) fn quietly(&mut self, request: &Request) -> Answer {
        let answer = self.server.client.send(request);
        self.record(describe(request), sent(request), answer.record());
        if let Some(step) = self.transcript.steps.last_mut() {
            step.quiet = true;
        }
        answer
    }

    /// Sends what must succeed for the rest to mean anything; how it is answered is not compared.
    pub(crate) fn prepare(&mut self, request: &Request) {
        let answer = self.quietly(request);
        assert!(
            (200..300).contains(&answer.status),
            "{} {} answered {}: {}",
            request.method,
            request.path,
            answer.status,
            answer.body
        );
    }

    /// Writes down something worked out here, such as the order of two versions.
    pub(crate) fn fact(&mut self, what: &str, value: impl Into<Value>) {
        self.record(
            format!("fact: {what}"),
            Value::Null,
            json!({"is": value.into()}),
        );
    }

    /// Asks until the answer is as wanted; only the last one counts.
    pub(crate) fn get_until(
        &mut self,
        path: &str,
        what: &str,
        wanted: impl Fn(&Answer) -> bool,
    ) -> Answer {
        let deadline = Instant::now() + SOON;
        loop {
            let answer = self.server.client.send(&Request::get(path));
            let good = wanted(&answer);
            if good || Instant::now() > deadline {
                let mut record = answer.record();
                record["in time"] = Value::from(good);
                self.record(format!("GET {path} until {what}"), Value::Null, record);
                return answer;
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    pub(crate) fn watch(&mut self, path: impl Into<String>) -> Watch {
        self.watch_with(Request::get(path))
    }

    /// Opens a watch and writes down how it was answered.
    pub(crate) fn watch_with(&mut self, request: Request) -> Watch {
        let stream = self.server.client.stream(&request);
        self.record(describe(&request), Value::Null, stream.head.record());
        Watch {
            path: request.path,
            stream,
        }
    }

    /// The next `count` events, or those that come in time.
    pub(crate) fn events(&mut self, watch: &mut Watch, count: usize) -> Vec<Value> {
        let mut events = Vec::new();
        let mut end = "more may come";
        while events.len() < count {
            match watch.stream.next(SOON) {
                Ok(event) => events.push(event),
                Err(ended) => {
                    end = if ended {
                        "the stream ended"
                    } else {
                        "nothing more came"
                    };
                    break;
                }
            }
        }
        let request = format!("{count} events of {}", watch.path);
        self.record(request, Value::Null, json!({"events": events, "then": end}));
        events
    }

    /// What comes until an object is deleted, and until silence after that.
    pub(crate) fn events_until_deleted(&mut self, watch: &mut Watch) -> Vec<Value> {
        let mut patience = SOON;
        self.events_while(watch, "until an object is deleted", |event| {
            if event["type"] == "DELETED" {
                patience = SILENCE;
            }
            patience
        })
    }

    /// What comes until the stream falls silent.
    pub(crate) fn events_until_silence(&mut self, watch: &mut Watch) -> Vec<Value> {
        self.events_while(watch, "until silence", |_| SILENCE)
    }

    /// What comes until the stream ends.
    pub(crate) fn events_until_end(&mut self, watch: &mut Watch) -> Vec<Value> {
        self.events_while(watch, "until the end", |_| SOON)
    }

    /// `patience` says after each event, and with null at the start, how long the next one may take.
    fn events_while(
        &mut self,
        watch: &mut Watch,
        what: &str,
        mut patience: impl FnMut(&Value) -> Duration,
    ) -> Vec<Value> {
        let mut events = Vec::new();
        let ended = loop {
            let last = events.last().unwrap_or(&Value::Null);
            match watch.stream.next(patience(last)) {
                Ok(event) => events.push(event),
                Err(ended) => break ended,
            }
        };
        let then = if ended { "the stream ended" } else { "silence" };
        let request = format!("events {what} of {}", watch.path);
        self.record(
            request,
            Value::Null,
            json!({"events": events, "then": then}),
        );
        events
    }

    pub(crate) fn kubectl(&mut self) -> &Kubectl {
        let server = self.server;
        self.kubectl.get_or_insert_with(|| {
            Kubectl::new(&server.binaries, &server.kubeconfig)
                .expect("kubectl is among the binaries")
        })
    }

    /// Keeps only these places of the last answer.
    pub(crate) fn keep_of_last(&mut self, pointers: &[&str]) {
        if let Some(step) = self.transcript.steps.last_mut() {
            let kept = pointers.iter().map(|pointer| {
                (
                    (*pointer).to_owned(),
                    step.answer.pointer(pointer).cloned().unwrap_or_default(),
                )
            });
            step.answer = Value::Object(kept.collect());
        }
    }

    /// Keeps only the lines of the last command's output that the predicate wants.
    pub(crate) fn keep_lines_of_last(&mut self, wanted: impl Fn(&str) -> bool) {
        if let Some(lines) = self
            .transcript
            .steps
            .last_mut()
            .and_then(|step| step.answer["stdout"].as_array_mut())
        {
            lines.retain(|line| line.as_str().is_some_and(&wanted));
        }
    }

    pub(crate) fn webhooks(&self) -> &'a WebhookServer {
        &self.server.webhooks
    }

    /// The webhooks of each server have a port of their own.
    fn hide_port(&self, value: Value) -> Value {
        let port = self.server.webhooks.port();
        let mut text = value.to_string();
        for host in ["127.0.0.1", "localhost"] {
            text = text.replace(&format!("{host}:{port}"), &format!("{host}:<port>"));
        }
        serde_json::from_str(&text).unwrap_or(value)
    }

    pub(crate) fn record(&mut self, request: String, sent: Value, answer: Value) {
        let (sent, answer) = (self.hide_port(sent), self.hide_port(answer));
        self.transcript.steps.push(Step {
            request,
            sent,
            answer,
            quiet: false,
        });
    }
}

/// Method and path, and the headers that differ from the usual.
fn describe(request: &Request) -> String {
    let mut text = format!("{} {}", request.method, request.path);
    for (name, value) in &request.headers {
        let usual = matches!(*name, "user-agent")
            || (*name == "content-type" && value == "application/json");
        if !usual {
            text.push_str(&format!(" [{name}: {value}]"));
        }
    }
    if request.user != crate::client::User::Admin {
        text.push_str(&format!(" as {:?}", request.user));
    }
    text
}

fn sent(request: &Request) -> Value {
    const LONGEST: usize = 100_000;
    if request.body.is_empty() {
        return Value::Null;
    }
    if request.body.len() > LONGEST {
        return Value::from(format!("{} bytes", request.body.len()));
    }
    serde_json::from_slice(&request.body)
        .unwrap_or_else(|_| Value::from(String::from_utf8_lossy(&request.body).into_owned()))
}
