//! Lists the pods of one machine at the API server of Kubernetes, over TLS, with the pod's service account.
//!
//! One request for each list, in HTTP 1.0, so the answer ends with the connection. Limits: [`ANSWER_MAX`] bytes and
//! [`PATIENCE`] for each step.

use anyhow::{Context, Result, bail, ensure};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use std::io::{Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// Where Kubernetes mounts a pod's service account.
pub(super) const ACCOUNT: &str = "/var/run/secrets/kubernetes.io/serviceaccount";
/// Longest answer: a machine has at most a few hundred pods.
const ANSWER_MAX: u64 = 64 << 20;
/// How long a connection and each read may take.
const PATIENCE: Duration = Duration::from_secs(10);

#[derive(Debug)]
pub(super) struct Server {
    host: String,
    port: u16,
    account: PathBuf,
}

impl Server {
    /// The server at `host:port`; `account` has the files `ca.crt` and `token`.
    pub(super) fn new(place: &str, account: &Path) -> Result<Self> {
        let wrong = || {
            crate::inputs::bad(format!(
                "--server {place}: must be HOST:PORT, like 10.96.0.1:443"
            ))
        };
        let (host, port) = place.rsplit_once(':').ok_or_else(wrong)?;
        let host = host.trim_start_matches('[').trim_end_matches(']');
        if host.is_empty() {
            return Err(wrong());
        }
        Ok(Self {
            host: host.to_owned(),
            port: port.parse().map_err(|_| wrong())?,
            account: account.to_owned(),
        })
    }

    /// The server that Kubernetes names in a pod's environment.
    pub(super) fn of_cluster(account: &Path) -> Result<Self> {
        let variable = |name: &str| {
            std::env::var(name).map_err(|_| {
                crate::inputs::bad(format!("{name} is not set: run in a pod, or give --server"))
            })
        };
        let (host, port) = (
            variable("KUBERNETES_SERVICE_HOST")?,
            variable("KUBERNETES_SERVICE_PORT")?,
        );
        Self::new(&format!("{host}:{port}"), account)
    }

    /// The pods of the machine `node`, as JSON.
    pub(super) fn pods(&self, node: &str) -> Result<String> {
        // The version 0 lets the server answer from its cache.
        let path = format!("/api/v1/pods?fieldSelector=spec.nodeName%3D{node}&resourceVersion=0");
        self.request(&path).with_context(|| {
            format!(
                "cannot list the pods of {node} at {}:{}",
                self.host, self.port
            )
        })
    }

    fn file(&self, name: &str) -> Result<String> {
        let path = self.account.join(name);
        std::fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))
    }

    fn request(&self, path: &str) -> Result<String> {
        // Kubernetes replaces both files while the pod runs.
        let token = self.file("token")?;
        let token = token.trim();
        ensure!(
            token.bytes().all(|byte| byte.is_ascii_graphic()),
            "the token has characters that a header cannot have"
        );
        let name = ServerName::try_from(self.host.clone()).context("not the name of a host")?;
        let connection = ClientConnection::new(Arc::new(self.config()?), name)?;
        let mut stream = StreamOwned::new(connection, self.connect()?);
        write!(
            stream,
            "GET {path} HTTP/1.0\r\nHost: {}\r\nAccept: application/json\r\nAuthorization: Bearer {token}\r\n\r\n",
            self.host
        )?;
        let mut answer = Vec::new();
        // A proxy may close without the end mark of TLS; the JSON text shows whether it is whole.
        match (&mut stream).take(ANSWER_MAX).read_to_end(&mut answer) {
            Err(error) if error.kind() != std::io::ErrorKind::UnexpectedEof => {
                return Err(error.into());
            }
            _ => {}
        }
        let answer = String::from_utf8(answer).context("the answer is not text")?;
        let (head, body) = answer
            .split_once("\r\n\r\n")
            .context("the answer is not HTTP")?;
        let status = head.lines().next().unwrap_or_default();
        match status.split_whitespace().nth(1) {
            Some("200") => Ok(body.to_owned()),
            Some("401" | "403") => {
                bail!("{status}; the service account needs the right to list pods")
            }
            _ => bail!("{status}"),
        }
    }

    fn connect(&self) -> Result<TcpStream> {
        let addresses = (self.host.as_str(), self.port).to_socket_addrs()?;
        let mut last = None;
        for address in addresses {
            match TcpStream::connect_timeout(&address, PATIENCE) {
                Ok(stream) => {
                    stream.set_read_timeout(Some(PATIENCE))?;
                    stream.set_write_timeout(Some(PATIENCE))?;
                    return Ok(stream);
                }
                Err(error) => last = Some(error),
            }
        }
        bail!(
            "{}",
            last.map_or_else(|| "no address".to_owned(), |error| error.to_string())
        )
    }

    fn config(&self) -> Result<ClientConfig> {
        let mut roots = RootCertStore::empty();
        let text = self.file("ca.crt")?;
        for certificate in CertificateDer::pem_slice_iter(text.as_bytes()) {
            roots
                .add(certificate.context("ca.crt")?)
                .context("ca.crt")?;
        }
        ensure!(!roots.is_empty(), "ca.crt has no certificate");
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_root_certificates(roots)
            .with_no_client_auth();
        Ok(config)
    }
}
