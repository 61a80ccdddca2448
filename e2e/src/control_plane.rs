//! etcd, kube-apiserver and, if enabled, the controllers and the scheduler, for the length of a test.
//!
//! No kubelet: nodes are objects, and pods run only as far as a test says so. [`crate::node`] has real nodes that join.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
};
use serde_json::{Value, json};

use crate::audit::{self, Request};
use crate::etcd::{self, Revision};
use crate::loopback::free_port;
use crate::process::Process;
use crate::{Binaries, Kubeconfig, Kubectl};

/// Kubernetes is ready within seconds; a loaded machine gets more.
const STARTUP: Duration = Duration::from_secs(120);
/// How often a start is tried again when a port was taken between choosing and using it.
const ATTEMPTS: usize = 3;
const ADMIN: &str = "admin";
const AUDIT_LOG: &str = "audit.log";

/// Removes the directory `$0` if we end without dropping the control plane, because a static has it or the test was killed: then standard
/// input ends without a line. The programs end at that time, too, and may write a last file.
const SWEEPER: &str = r#"
read -r _ && exit
for _ in 1 2 3; do sleep 1; rm -rf "$0" && exit; done
"#;

/// What to start besides etcd and kube-apiserver, and for which users.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// Users besides `admin`, who is in `system:masters`. RBAC decides what they may do.
    pub users: Vec<User>,
    /// Admission plugins to turn off, by name.
    pub disable_admission_plugins: Vec<String>,
    /// Controllers that kube-controller-manager runs, as its `--controllers` flag takes them.
    /// Empty: it does not run.
    pub controllers: Vec<String>,
    /// The KubeSchedulerConfiguration that kube-scheduler runs with, without its connection.
    pub scheduler: Option<Value>,
    /// Record the requests of users of this group; see [`ControlPlane::audit`].
    pub audited_group: Option<String>,
    /// Record the bodies of their binds, too.
    pub audit_binds: bool,
    /// More kube-apiserver flags.
    pub apiserver_flags: Vec<String>,
}

#[derive(Debug, Clone)]
pub struct User {
    pub name: String,
    pub groups: Vec<String>,
}

/// A running control plane. Dropping it stops it; its logs stay if the thread is panicking, so a
/// test should fail by panicking rather than by returning an error.
pub struct ControlPlane {
    options: Options,
    binaries: Binaries,
    directory: PathBuf,
    etcd_port: u16,
    etcd_peer_port: u16,
    apiserver_port: u16,
    certificate_authority_pem: String,
    authority: Option<Issuer<'static, KeyPair>>,
    tokens: Vec<(String, String)>,
    keep_logs: bool,
    sweeper: Child,
    // Stopped in this order.
    scheduler: Option<Process>,
    controller_manager: Option<Process>,
    apiserver: Option<Process>,
    etcd: Option<Process>,
}

impl ControlPlane {
    /// Starts it and waits until it is ready.
    pub fn start(options: Options) -> Result<Self> {
        let directory = tempfile::Builder::new()
            .prefix("tidepool-e2e-")
            .tempdir()
            .context("no temporary directory for the control plane")?
            .keep();
        let sweeper = Command::new("sh")
            .args(["-c", SWEEPER])
            .arg(&directory)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .context("cannot start a shell")?;
        let mut control_plane = Self {
            options,
            binaries: Binaries::find()?,
            directory,
            etcd_port: 0,
            etcd_peer_port: 0,
            apiserver_port: 0,
            certificate_authority_pem: String::new(),
            authority: None,
            tokens: Vec::new(),
            keep_logs: true, // until it has started
            sweeper,
            scheduler: None,
            controller_manager: None,
            apiserver: None,
            etcd: None,
        };
        control_plane.write_credentials()?;
        control_plane.start_etcd()?;
        control_plane.start_apiserver()?;
        control_plane.start_controller_manager()?;
        control_plane.start_scheduler()?;
        control_plane.keep_logs = false;
        Ok(control_plane)
    }

    /// `https://127.0.0.1:port`.
    pub fn url(&self) -> String {
        format!("https://127.0.0.1:{}", self.apiserver_port)
    }

    /// The user in `system:masters`.
    pub fn admin(&self) -> Kubeconfig {
        self.kubeconfig(ADMIN)
    }

    /// One of the users in the options. Panics for a name that is not among them.
    pub fn kubeconfig(&self, user: &str) -> Kubeconfig {
        let Some((_, token)) = self.tokens.iter().find(|(name, _)| name == user) else {
            panic!("{user} is not a user of this control plane: name it in the options");
        };
        Kubeconfig {
            server: self.url(),
            certificate_authority_pem: self.certificate_authority_pem.clone(),
            user: user.to_owned(),
            token: token.clone(),
        }
    }

    /// The text of a kubeconfig for a user with a client certificate and no token, as kubeadm makes them.
    pub fn certificate_kubeconfig(&self, user: &str, group: &str) -> Result<String> {
        let authority = self.authority.as_ref().context("there is no authority")?;
        let mut parameters = CertificateParams::default();
        parameters.distinguished_name.push(DnType::CommonName, user);
        parameters
            .distinguished_name
            .push(DnType::OrganizationName, group);
        parameters.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        let key = KeyPair::generate()?;
        let certificate = parameters.signed_by(&key, authority)?;
        let mut text: Value = serde_json::from_str(&self.admin().to_yaml())?;
        text["users"][0]["user"] = json!({
            "client-certificate-data": BASE64.encode(certificate.pem()),
            "client-key-data": BASE64.encode(key.serialize_pem()),
        });
        Ok(text.to_string())
    }

    /// kubectl as `admin`.
    pub fn kubectl(&self) -> Result<Kubectl> {
        Kubectl::new(&self.binaries, &self.admin())
    }

    pub fn binaries(&self) -> &Binaries {
        &self.binaries
    }

    /// Where the logs are while it runs.
    pub fn logs(&self) -> &Path {
        &self.directory
    }

    /// Keeps the logs and prints where they are. A panic does the same.
    pub fn keep_logs(&mut self) {
        self.keep_logs = true;
    }

    /// Kills kube-apiserver and starts it again on the same data and port.
    pub fn restart_apiserver(&mut self) -> Result<()> {
        if let Some(mut apiserver) = self.apiserver.take() {
            apiserver.stop();
        }
        self.apiserver = Some(self.spawn_apiserver()?);
        self.wait_for_apiserver()
    }

    /// Restarts the API server with these flags instead of those in the options.
    pub fn restart_apiserver_with(&mut self, flags: &[&str]) -> Result<()> {
        self.options.apiserver_flags = flags.iter().map(|&flag| flag.to_owned()).collect();
        self.restart_apiserver()
    }

    /// Kills etcd. The API server has no store until [`Self::restart_etcd`].
    pub fn kill_etcd(&mut self) {
        if let Some(mut etcd) = self.etcd.take() {
            etcd.stop();
        }
    }

    /// Kills etcd if it runs, and starts it again on the same data and ports.
    pub fn restart_etcd(&mut self) -> Result<()> {
        self.kill_etcd();
        let mut etcd = self.spawn_etcd()?;
        let port = self.etcd_port;
        wait_until("etcd", &mut etcd, || etcd::revision(port).map(|_| ()))?;
        self.etcd = Some(etcd);
        Ok(())
    }

    /// Makes etcd forget every revision before the present one. A running kube-apiserver still
    /// serves old versions from its cache; after a restart it cannot.
    pub fn compact(&self) -> Result<()> {
        etcd::compact(self.etcd_port)
    }

    /// One more kube-scheduler with this KubeSchedulerConfiguration, as `admin`; without leader election, unless it enables it.
    pub fn kube_scheduler(&self, config: &Value, flags: &[&str]) -> Result<Process> {
        let mut config = config.clone();
        config["clientConnection"]["kubeconfig"] = json!(self.kubeconfig_file(ADMIN)?);
        if config["leaderElection"].is_null() {
            config["leaderElection"] = json!({"leaderElect": false});
        }
        self.write("scheduler.yaml", &config.to_string())?;
        let config = format!("--config={}", self.path("scheduler.yaml").display());
        let mut all = vec![config, "--secure-port=0".to_owned()];
        all.extend(flags.iter().map(|&flag| flag.to_owned()));
        self.spawn("kube-scheduler", &all)
    }

    /// A scheduler of ours as this user; its log is `NAME.log`.
    pub fn tidepool(&self, name: &str, user: &Kubeconfig, flags: &[&str]) -> Result<Process> {
        let kubeconfig = format!("{name}.kubeconfig");
        self.write(&kubeconfig, &user.to_yaml())?;
        let mut arguments = vec![
            "scheduler".to_owned(),
            format!("--kubeconfig={}", self.path(&kubeconfig).display()),
        ];
        arguments.extend(flags.iter().map(|&flag| flag.to_owned()));
        self.run(name, &crate::tidepool::binary()?, &arguments)
    }

    /// Any program; its log is `NAME.log`.
    pub fn run(&self, name: &str, program: &Path, arguments: &[String]) -> Result<Process> {
        Process::start(program, arguments, &self.path(&format!("{name}.log")))
    }

    /// A file with the kubeconfig of a user, there as long as the control plane is.
    pub fn kubeconfig_file(&self, user: &str) -> Result<PathBuf> {
        let name = format!("{user}.kubeconfig");
        self.write(&name, &self.kubeconfig(user).to_yaml())?;
        Ok(self.path(&name))
    }

    /// The process id of kube-apiserver.
    pub fn apiserver_id(&self) -> Option<u32> {
        self.apiserver.as_ref().map(Process::id)
    }

    /// The process id of etcd.
    pub fn etcd_id(&self) -> Option<u32> {
        self.etcd.as_ref().map(Process::id)
    }

    /// Every change in etcd from this revision on, up to now. Revisions that were compacted are an error.
    pub fn history(&self, from: u64) -> Result<Vec<Revision>> {
        etcd::history(self.etcd_port, from)
    }

    /// The private key that signs tokens of service accounts.
    pub fn accounts_key_pem(&self) -> Result<String> {
        let path = self.path("accounts.key");
        fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))
    }

    /// The file with the requests of the audited group, one JSON object per line.
    pub fn audit_log(&self) -> PathBuf {
        self.path(AUDIT_LOG)
    }

    /// The requests of the audited group that are over, oldest first.
    pub fn audit(&self) -> Result<Vec<Request>> {
        audit::read(&self.path(AUDIT_LOG))
    }

    /// How many objects etcd has below this key, such as `/registry/pods/`. Cheaper than asking the API server.
    pub fn count_objects(&self, prefix: &str) -> Result<u64> {
        etcd::count(self.etcd_port, prefix)
    }

    /// How often each object below this key has been written in etcd, its creation included.
    pub fn writes(&self, prefix: &str) -> Result<BTreeMap<String, u64>> {
        etcd::writes(self.etcd_port, prefix)
    }

    fn write_credentials(&mut self) -> Result<()> {
        let authority_key = KeyPair::generate()?;
        let mut authority = CertificateParams::default();
        authority
            .distinguished_name
            .push(DnType::CommonName, "tidepool-e2e");
        authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let authority_pem = authority.self_signed(&authority_key)?.pem();
        let issuer = Issuer::new(authority, authority_key);

        let serving_key = KeyPair::generate()?;
        let names = ["127.0.0.1", "localhost"].map(str::to_owned);
        let serving = CertificateParams::new(names)?.signed_by(&serving_key, &issuer)?;
        self.write("serving.crt", &serving.pem())?;
        self.write("serving.key", &serving_key.serialize_pem())?;
        self.write("ca.crt", &authority_pem)?;
        self.certificate_authority_pem = authority_pem;
        self.authority = Some(issuer);

        let accounts_key = KeyPair::generate()?;
        self.write("accounts.key", &accounts_key.serialize_pem())?;
        self.write("accounts.pub", &accounts_key.public_key_pem())?;

        let admin = User {
            name: ADMIN.to_owned(),
            groups: vec!["system:masters".to_owned()],
        };
        let mut lines = String::new();
        for user in std::iter::once(&admin).chain(&self.options.users) {
            let token = random_token()?;
            let groups = user.groups.join(",");
            lines.push_str(&format!(
                "{token},{name},{name},\"{groups}\"\n",
                name = user.name
            ));
            self.tokens.push((user.name.clone(), token));
        }
        self.write("tokens.csv", &lines)
    }

    fn start_etcd(&mut self) -> Result<()> {
        for _ in 0..ATTEMPTS {
            self.etcd_port = free_port()?;
            self.etcd_peer_port = free_port()?;
            let mut etcd = self.spawn_etcd()?;
            let port = self.etcd_port;
            let ready = wait_until("etcd", &mut etcd, || etcd::revision(port).map(|_| ()));
            match ready {
                Ok(()) => {
                    self.etcd = Some(etcd);
                    return Ok(());
                }
                Err(error) if taken(&etcd) => drop(error),
                Err(error) => return Err(error),
            }
        }
        bail!("etcd found no free port in {ATTEMPTS} attempts")
    }

    fn spawn_etcd(&self) -> Result<Process> {
        let client = format!("http://127.0.0.1:{}", self.etcd_port);
        let peer = format!("http://127.0.0.1:{}", self.etcd_peer_port);
        let flags = [
            format!("--data-dir={}", self.path("etcd").display()),
            format!("--listen-client-urls={client}"),
            format!("--advertise-client-urls={client}"),
            format!("--listen-peer-urls={peer}"),
            format!("--initial-advertise-peer-urls={peer}"),
            format!("--initial-cluster=default={peer}"),
            "--log-level=warn".to_owned(),
            // The data need not survive the machine.
            "--unsafe-no-fsync".to_owned(),
        ];
        self.spawn("etcd", &flags)
    }

    fn start_apiserver(&mut self) -> Result<()> {
        for _ in 0..ATTEMPTS {
            self.apiserver_port = free_port()?;
            self.apiserver = Some(self.spawn_apiserver()?);
            match self.wait_for_apiserver() {
                Ok(()) => return Ok(()),
                Err(error) => match &self.apiserver {
                    Some(apiserver) if taken(apiserver) => drop(error),
                    _ => return Err(error),
                },
            }
        }
        bail!("kube-apiserver found no free port in {ATTEMPTS} attempts")
    }

    fn spawn_apiserver(&self) -> Result<Process> {
        let file = |flag: &str, name: &str| format!("--{flag}={}", self.path(name).display());
        let mut flags = vec![
            format!("--etcd-servers=http://127.0.0.1:{}", self.etcd_port),
            "--bind-address=127.0.0.1".to_owned(),
            format!("--secure-port={}", self.apiserver_port),
            file("cert-dir", "."),
            file("tls-cert-file", "serving.crt"),
            file("tls-private-key-file", "serving.key"),
            file("token-auth-file", "tokens.csv"),
            file("client-ca-file", "ca.crt"),
            file("service-account-key-file", "accounts.pub"),
            file("service-account-signing-key-file", "accounts.key"),
            "--service-account-issuer=https://kubernetes.default.svc".to_owned(),
            "--service-cluster-ip-range=10.0.0.0/24".to_owned(),
        ];
        let given = self.options.apiserver_flags.iter();
        if !given
            .clone()
            .any(|flag| flag.starts_with("--authorization-mode="))
        {
            flags.push("--authorization-mode=RBAC".to_owned());
        }
        if !self.options.disable_admission_plugins.is_empty() {
            let plugins = self.options.disable_admission_plugins.join(",");
            flags.push(format!("--disable-admission-plugins={plugins}"));
        }
        if let Some(group) = &self.options.audited_group {
            self.write(
                "audit-policy.yaml",
                &audit::policy(group, self.options.audit_binds).to_string(),
            )?;
            flags.push(file("audit-policy-file", "audit-policy.yaml"));
            flags.push(file("audit-log-path", AUDIT_LOG));
        }
        flags.extend(given.cloned());
        self.spawn("kube-apiserver", &flags)
    }

    fn wait_for_apiserver(&mut self) -> Result<()> {
        let admin = self.admin();
        let Some(apiserver) = self.apiserver.as_mut() else {
            bail!("kube-apiserver was not started");
        };
        // A thread of its own: the caller may be inside an async runtime.
        std::thread::scope(|scope| {
            scope
                .spawn(|| {
                    let runtime = tokio::runtime::Builder::new_current_thread()
                        .enable_all()
                        .build()?;
                    let config = runtime.block_on(admin.to_client_config())?;
                    let client = {
                        let _inside = runtime.enter();
                        kube::Client::try_from(config)?
                    };
                    wait_until("kube-apiserver", apiserver, || {
                        let request = http::Request::get("/readyz").body(Vec::new())?;
                        runtime.block_on(client.request_text(request))?;
                        Ok(())
                    })
                })
                .join()
                .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    }

    fn start_controller_manager(&mut self) -> Result<()> {
        if self.options.controllers.is_empty() {
            return Ok(());
        }
        let kubeconfig = self.kubeconfig_file(ADMIN)?;
        let flags = [
            format!("--kubeconfig={}", kubeconfig.display()),
            format!("--controllers={}", self.options.controllers.join(",")),
            format!("--root-ca-file={}", self.path("ca.crt").display()),
            format!(
                "--service-account-private-key-file={}",
                self.path("accounts.key").display()
            ),
            "--leader-elect=false".to_owned(),
            "--secure-port=0".to_owned(),
        ];
        self.controller_manager = Some(self.spawn("kube-controller-manager", &flags)?);
        Ok(())
    }

    fn start_scheduler(&mut self) -> Result<()> {
        if let Some(config) = &self.options.scheduler {
            self.scheduler = Some(self.kube_scheduler(config, &[])?);
        }
        Ok(())
    }

    fn spawn(&self, program: &str, flags: &[String]) -> Result<Process> {
        let log = self.path(&format!("{program}.log"));
        Process::start(&self.binaries.path(program)?, flags, &log)
    }

    fn write(&self, name: &str, text: &str) -> Result<()> {
        let path = self.path(name);
        fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }
}

impl Drop for ControlPlane {
    fn drop(&mut self) {
        let stopped = [
            self.scheduler.take(),
            self.controller_manager.take(),
            self.apiserver.take(),
            self.etcd.take(),
        ];
        stopped.into_iter().flatten().for_each(drop);
        if let Some(mut line) = self.sweeper.stdin.take() {
            // It has nothing to do; if it was killed, neither.
            let _ = line.write_all(b"\n");
        }
        let _ = self.sweeper.wait();
        if self.keep_logs || std::thread::panicking() {
            // Logs and credentials are small; the data is not.
            let _ = fs::remove_dir_all(self.path("etcd"));
            #[expect(
                clippy::print_stderr,
                reason = "the reader of the failure needs the place"
            )]
            {
                eprintln!("logs of the control plane: {}", self.directory.display());
            }
        } else {
            // A directory that cannot be removed is no reason to fail a test that passed.
            let _ = fs::remove_dir_all(&self.directory);
        }
    }
}

/// Asks until the answer is good, the process ends or the time is up.
fn wait_until(
    name: &str,
    process: &mut Process,
    mut ask: impl FnMut() -> Result<()>,
) -> Result<()> {
    let deadline = Instant::now() + STARTUP;
    loop {
        let Err(error) = ask() else {
            return Ok(());
        };
        if let Some(status) = process.ended()? {
            bail!(
                "{name} ended ({status}) before it was ready:\n{}",
                process.last_words()
            );
        }
        if Instant::now() > deadline {
            return Err(error.context(format!(
                "{name} was not ready after {} s:\n{}",
                STARTUP.as_secs(),
                process.last_words()
            )));
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}

fn taken(process: &Process) -> bool {
    process.last_words().contains("address already in use")
}

fn random_token() -> Result<String> {
    use std::io::Read;
    let mut bytes = [0; 16];
    fs::File::open("/dev/urandom")
        .and_then(|mut file| file.read_exact(&mut bytes))
        .context("no randomness for a token")?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}
