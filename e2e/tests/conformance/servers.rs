//! The two servers under comparison, and what both of them hold from the start.

use anyhow::{Context, Result};
use apiserver::{Cluster, ServeOptions, Serving};
use e2e::{Binaries, ControlPlane, Kubeconfig, Options, WebhookAuthority, WebhookServer};
use tokio::runtime::Runtime;

use crate::client::{Client, Request};
use crate::objects;

/// One API server, whichever it is.
pub(crate) struct Server {
    pub(crate) name: &'static str,
    pub(crate) client: Client,
    pub(crate) kubeconfig: Kubeconfig,
    pub(crate) binaries: Binaries,
    /// What this server's webhook configurations name.
    pub(crate) webhooks: WebhookServer,
}

/// The Service of the behaviour about webhooks behind a Service.
pub(crate) const SERVICE_HOST: &str = "hook.h12.svc";

pub(crate) struct Servers {
    pub(crate) real: Server,
    pub(crate) other: Server,
    pub(crate) other_is_embedded: bool,
    control_planes: Vec<ControlPlane>,
    _embedded: Option<(Serving, local::Running)>,
    // Last, so that the connections above end first.
    _runtime: Runtime,
}

impl Servers {
    pub(crate) fn start() -> Result<Self> {
        let runtime = Runtime::new().context("no runtime for the clients")?;
        let twice = std::env::var("CONFORMANCE_AGAINST").is_ok_and(|against| against == "real");
        let real = start_real()?;
        let binaries = real.binaries().clone();
        let authority = WebhookAuthority::new("webhooks", &["127.0.0.1", SERVICE_HOST])?;
        let server = |name, kubeconfig: Kubeconfig| -> Result<Server> {
            let client = Client::new(runtime.handle().clone(), &kubeconfig)?;
            let binaries = binaries.clone();
            let server = Server {
                name,
                client,
                kubeconfig,
                binaries,
                webhooks: WebhookServer::start(&authority)?,
            };
            server.prepare()?;
            Ok(server)
        };
        let mut control_planes = Vec::new();
        let mut embedded = None;
        let other = if twice {
            let other = start_real()?;
            let kubeconfig = other.admin();
            control_planes.push(other);
            server("other", kubeconfig)?
        } else {
            let (serving, cleanup, kubeconfig) = runtime.block_on(start_embedded())?;
            embedded = Some((serving, cleanup));
            server("embedded", kubeconfig)?
        };
        let real_server = server("real", real.admin())?;
        control_planes.push(real);
        Ok(Self {
            real: real_server,
            other,
            other_is_embedded: !twice,
            control_planes,
            _embedded: embedded,
            _runtime: runtime,
        })
    }

    pub(crate) fn keep_logs(&mut self) {
        self.control_planes
            .iter_mut()
            .for_each(ControlPlane::keep_logs);
    }
}

/// The real API server with a past that it has forgotten, so that version 1 is too old for it.
fn start_real() -> Result<ControlPlane> {
    let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
    let mut control_plane = ControlPlane::start(Options {
        // Tests create bare nodes.
        disable_admission_plugins: names(&["TaintNodesByCondition"]),
        // The two without which a deletion never ends. Others would write while tests look.
        controllers: names(&["garbage-collector-controller", "namespace-controller"]),
        ..Options::default()
    })?;
    control_plane.compact()?;
    control_plane.restart_apiserver()?;
    Ok(control_plane)
}

/// The embedded cluster, with a past that it has forgotten too, and with the same two controllers.
async fn start_embedded() -> Result<(Serving, local::Running, Kubeconfig)> {
    let cluster = Cluster::new(apiserver::Options::default());
    cluster.compact();
    let cleanup = local::start_cleanup(kube::Client::new(cluster.service(), "default"));
    cleanup.synced().await;
    let serving = cluster.serve(ServeOptions::default()).await?;
    let kubeconfig = Kubeconfig {
        server: serving.url(),
        certificate_authority_pem: serving.ca_pem().to_owned(),
        user: "admin".to_owned(),
        token: serving
            .token("admin")
            .context("the embedded cluster has no admin")?
            .to_owned(),
    };
    Ok((serving, cleanup, kubeconfig))
}

impl Server {
    /// The custom kind that several behaviours use.
    fn prepare(&self) -> Result<()> {
        let definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
        let created = self
            .client
            .send(&Request::post(definitions).json(&objects::widget_definition()));
        anyhow::ensure!(
            created.status == 201,
            "{}: no custom kind: {created:?}",
            self.name
        );
        let probe =
            Request::post("/apis/conformance.tidepool.io/v1/namespaces/default/widgets?dryRun=All")
                .json(&objects::widget("probe"));
        let deadline = std::time::Instant::now() + std::time::Duration::from_secs(30);
        loop {
            let answer = self.client.send(&probe);
            if answer.status == 201 {
                return Ok(());
            }
            let late = std::time::Instant::now() > deadline;
            anyhow::ensure!(
                !late,
                "{}: the custom kind is not served: {answer:?}",
                self.name
            );
            std::thread::sleep(std::time::Duration::from_millis(100));
        }
    }
}
