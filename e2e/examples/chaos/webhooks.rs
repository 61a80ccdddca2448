//! Replicas of the webhook and of the gate, with clocks that jump. Both replicas of each share certificates, which must stay usable
//! whatever one of the clocks says. They judge nothing here: no pod is in a namespace that their configurations select.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use e2e::{Api, ControlPlane, Kubeconfig, Process};
use jiff::{SignedDuration, Timestamp};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore};
use serde_json::{Value, json};

use crate::checker::Violation;
use crate::cluster::retry;
use crate::replicas::LEASE_NAMESPACE;

/// The component, and what its log says before its address.
const COMPONENTS: [(&str, &str, &str); 2] = [
    (
        "webhook",
        "tidepool-webhook",
        "answering reviews on https://",
    ),
    ("gate", "tidepool-gate", "serving reviews on https://"),
];
/// Certificates are renewed while clocks are wrong.
const FLAGS: [&str; 8] = [
    "--webhook-address=127.0.0.1",
    "--webhook-port=0",
    "--webhook-host=127.0.0.1",
    "--secure-port=0",
    "--certificate-renewal=3s",
    "--ca-renewal=10s",
    "--ca-settle-time=1s",
    "--certificate-check-interval=500ms",
];
/// After the last fault, until both replicas are usable.
const LIMIT: Duration = Duration::from_secs(60);
/// More than a replica takes from the look at its clock to the answer to its write, and less than any jump.
const ROUND: SignedDuration = SignedDuration::from_secs(60);
/// How long a handshake may be silent.
const SILENCE: Duration = Duration::from_secs(5);

/// By component, the times at which what its replicas share was made.
pub(crate) type Made = BTreeMap<&'static str, BTreeSet<String>>;

/// All replicas. They end when this is dropped.
pub(crate) struct Webhooks {
    replicas: Vec<ReviewReplica>,
    found: Mutex<Vec<Violation>>,
}

struct ReviewReplica {
    /// With its number.
    name: String,
    /// The name of the Secret and of the configuration.
    component: &'static str,
    says: &'static str,
    number: usize,
    clock: PathBuf,
    process: Mutex<Process>,
}

impl Webhooks {
    pub(crate) fn start(control_plane: &ControlPlane, program: &Path, shim: &Path) -> Result<Self> {
        let directory = control_plane.logs();
        let mut replicas = Vec::new();
        for (command, component, says) in COMPONENTS {
            let user = account(control_plane, component)?;
            let kubeconfig = directory.join(format!("{component}.kubeconfig"));
            fs::write(&kubeconfig, user.to_yaml())?;
            for number in 0..2 {
                let name = format!("{command}-{number}");
                let clock = directory.join(format!("{name}.clock"));
                fs::write(&clock, 0_i64.to_ne_bytes())?;
                let mut arguments = vec![
                    format!("LD_PRELOAD={}", shim.display()),
                    format!("CHAOS_CLOCK={}", clock.display()),
                    program.display().to_string(),
                    command.to_owned(),
                    format!("--kubeconfig={}", kubeconfig.display()),
                ];
                arguments.extend(FLAGS.map(str::to_owned));
                if command == "gate" {
                    // Without a Lease it has nothing to lose while the API server is down.
                    arguments.push("--leader-elect=false".to_owned());
                }
                let log = directory.join(format!("{name}.log"));
                let process = Process::start(Path::new("env"), &arguments, &log)?;
                replicas.push(ReviewReplica {
                    name,
                    component,
                    says,
                    number,
                    clock,
                    process: Mutex::new(process),
                });
            }
        }
        Ok(Self {
            replicas,
            found: Mutex::default(),
        })
    }

    /// Sets the clocks of these replicas of both components off by so many seconds.
    pub(crate) fn jump(&self, numbers: &[usize], seconds: i64) -> Result<()> {
        let victims = self.replicas.iter();
        for replica in victims.filter(|it| numbers.contains(&it.number)) {
            let file = fs::File::options().write(true).open(&replica.clock)?;
            file.write_all_at(&seconds.to_ne_bytes(), 0)?;
        }
        Ok(())
    }

    /// When that which the replicas share was made; of components whose Secret can be read.
    pub(crate) fn made(&self, api: &Api) -> Made {
        let of = |component: &'static str| Some((component, times(&state(api, component).ok()?)));
        let all = COMPONENTS.into_iter();
        all.filter_map(|(_, component, _)| of(component)).collect()
    }

    /// Notes a certificate in a Secret that no client can use now, and one that a replica with a wrong clock made: it is not among
    /// those of before, and was made neither since then nor a moment earlier.
    pub(crate) fn look(&self, api: &Api, before: &Made, since: Timestamp) {
        for (_, component, _) in COMPONENTS {
            // The API server may be down.
            let Ok(state) = state(api, component) else {
                continue;
            };
            for part in ["authority", "certificate"] {
                if let Err(why) = is_current(&state[part]) {
                    self.note(format!("the {part} in Secret {component}: {why}"));
                }
            }
            let Some(known) = before.get(component) else {
                continue;
            };
            for made in times(&state).difference(known) {
                if !is_between(made, since, Timestamp::now()) {
                    self.note(format!(
                        "Secret {component} was written by a wrong clock: a part of it was made at {made}"
                    ));
                }
            }
        }
    }

    /// What is wrong when the clocks are right: each replica must serve a certificate that the configuration trusts.
    pub(crate) fn settle(&self, api: &Api) -> Vec<Violation> {
        let deadline = Instant::now() + LIMIT;
        for replica in &self.replicas {
            loop {
                match replica.shake_hands(api) {
                    Ok(()) => break,
                    Err(error) if Instant::now() > deadline => {
                        self.note(format!("replica {}: {error:#}", replica.name));
                        break;
                    }
                    Err(_) => std::thread::sleep(Duration::from_millis(200)),
                }
            }
        }
        std::mem::take(&mut *self.found.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn note(&self, text: String) {
        let mut found = self.found.lock().unwrap_or_else(PoisonError::into_inner);
        found.push(Violation {
            rule: "certificate",
            text,
        });
    }
}

impl ReviewReplica {
    /// A handshake, as the API server does it.
    fn shake_hands(&self, api: &Api) -> Result<()> {
        let address: SocketAddr = {
            let mut process = self.process.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(status) = process.ended()? {
                bail!("it ended: {status}: {}", process.last_words());
            }
            let log = process.log();
            let (_, rest) = log.split_once(self.says).context("it does not serve yet")?;
            let address = rest.lines().next().unwrap_or_default();
            address.trim().parse()?
        };
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config =
            ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
        let config = config.with_root_certificates(roots(api, self.component)?);
        let config = Arc::new(config.with_no_client_auth());
        let mut stream = TcpStream::connect(address)?;
        stream.set_read_timeout(Some(SILENCE))?;
        let mut connection = ClientConnection::new(config, ServerName::from(address.ip()))?;
        while connection.is_handshaking() {
            connection.complete_io(&mut stream)?;
        }
        Ok(())
    }
}

/// The CAs that the configuration trusts.
fn roots(api: &Api, component: &str) -> Result<RootCertStore> {
    let group = "/apis/admissionregistration.k8s.io/v1";
    let configuration = api.get(&format!(
        "{group}/validatingwebhookconfigurations/{component}"
    ))?;
    let bundle = &configuration["webhooks"][0]["clientConfig"]["caBundle"];
    let bundle = BASE64.decode(bundle.as_str().context("it has no CA bundle")?)?;
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(CertificateDer::pem_slice_iter(&bundle).flatten());
    Ok(roots)
}

/// What the replicas share.
fn state(api: &Api, component: &str) -> Result<Value> {
    let path = format!("/api/v1/namespaces/{LEASE_NAMESPACE}/secrets/{component}");
    let secret = api.get(&path)?;
    let state = secret["data"]["state.json"]
        .as_str()
        .context("it has no state")?;
    Ok(serde_json::from_slice(&BASE64.decode(state)?)?)
}

/// The times at which the parts were made. A CA that comes next keeps its time when it becomes the CA.
fn times(state: &Value) -> BTreeSet<String> {
    let parts = ["authority", "next", "certificate"].into_iter();
    let times = parts.filter_map(|part| state[part]["made"].as_str());
    times.map(str::to_owned).collect()
}

/// By the clock of this process. A write may have begun before.
fn is_between(made: &str, since: Timestamp, now: Timestamp) -> bool {
    let Ok(made) = made.parse::<Timestamp>() else {
        return false;
    };
    let early = since.checked_sub(ROUND);
    early.is_ok_and(|early| early <= made) && now.checked_add(ROUND).is_ok_and(|late| made <= late)
}

/// By the clock of this process, which does not jump. A certificate begins an hour before it is made.
fn is_current(certificate: &Value) -> Result<()> {
    let time = |field: &str| -> Result<Timestamp> {
        let text = certificate[field].as_str().context("it has no times")?;
        Ok(text.parse()?)
    };
    let now = Timestamp::now();
    let (made, ends) = (time("made")?, time("ends")?);
    let start = made.checked_sub(SignedDuration::from_hours(1))?;
    if now < start || now >= ends {
        bail!("it was made at {made} and ends at {ends}");
    }
    Ok(())
}

/// The service account of a component.
fn account(control_plane: &ControlPlane, name: &str) -> Result<Kubeconfig> {
    let admin = control_plane.admin();
    let api = Api::new(&admin)?;
    let path = format!("/api/v1/namespaces/{LEASE_NAMESPACE}/serviceaccounts/{name}/token");
    let request = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest",
        "spec": {"expirationSeconds": 24 * 3_600}});
    let answer = retry("a token is made", || api.post(&path, &request))?;
    let token = answer["status"]["token"].as_str().context("no token")?;
    Ok(Kubeconfig {
        user: name.to_owned(),
        token: token.to_owned(),
        ..admin
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_wrong_clock_made_is_found() {
        let at = |second: i64| Timestamp::from_second(1_800_000_000 + second).unwrap();
        for (case, made, is_good) in [
            ("by a right clock", at(5), true),
            ("a moment before", at(-20), true),
            ("by a clock that is minutes ahead", at(405), false),
            ("by one that is minutes behind", at(-395), false),
            ("by one that is hours behind", at(-7195), false),
        ] {
            let is_between = is_between(&made.to_string(), at(0), at(6));
            assert_eq!(is_between, is_good, "{case}");
        }
        let state = json!({"authority": {"made": "a"}, "next": null, "certificate": {"made": "b"}});
        let want = ["a", "b"].map(str::to_owned);
        assert_eq!(times(&state), BTreeSet::from(want));
    }

    #[test]
    fn certificates_of_a_wrong_clock_are_found() {
        let now = Timestamp::now().as_second();
        for (case, made, ends, is_good) in [
            ("of now", 0, 100, true),
            ("of in half an hour", 1_800, 9_000, true),
            ("of tomorrow", 86_400, 100_000, false),
            ("expired", -100, -1, false),
        ] {
            let at = |seconds: i64| Timestamp::from_second(now + seconds).unwrap().to_string();
            let certificate = json!({"made": at(made), "ends": at(ends)});
            assert_eq!(is_current(&certificate).is_ok(), is_good, "{case}");
        }
        assert!(is_current(&json!({})).is_err());
    }
}
