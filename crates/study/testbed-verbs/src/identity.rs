//! Certificates of a private authority, for controllers and agents.
//!
//! `isolane rdma agent init DIR NAME...` makes an authority in `DIR/authority` and for every NAME a directory
//! `DIR/NAME` to be copied to that machine: `authority.pem`, `certificate.pem`, `key.pem`. Both ends of a connection
//! show a certificate of the authority; an agent's must also be for the name or address it is reached by, so one
//! machine cannot impersonate another. A controller's must be for the name [`CONTROLLER`], so the certificate of one
//! machine does not control the others. The authority's key is needed only to make more certificates.
//!
//! Files have mode 0600 and directories 0700; a key that others can read is refused. A machine's certificate is valid
//! for [`CERTIFICATE_DAYS`], the authority's for [`AUTHORITY_DAYS`]; to renew one, remove its directory and make it again.
//! To revoke one earlier, make a new authority. Keys are ECDSA over P-256.

use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa,
    Issuer, KeyPair, KeyUsagePurpose,
};
use rustls::client::verify_server_name;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::server::{ParsedCertificate, WebPkiClientVerifier};
use rustls::version::TLS13;
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

/// The name that a controller's certificate is for.
pub const CONTROLLER: &str = "controller";
/// Days for which a machine's certificate is valid: a copied key is of no use after that.
pub const CERTIFICATE_DAYS: u64 = 397;
/// Days for which an authority's certificate is valid.
pub const AUTHORITY_DAYS: u64 = 3_650;
/// A certificate is valid from this long before it is made, as clocks of machines differ.
const EARLIER: Duration = Duration::from_secs(24 * 3_600);

/// The authority's directory.
const AUTHORITY: &str = "authority";
/// The authority's certificate.
const AUTHORITY_FILE: &str = "authority.pem";
/// A machine's certificate.
const CERTIFICATE_FILE: &str = "certificate.pem";
/// A private key.
const KEY_FILE: &str = "key.pem";

/// What goes wrong with certificates.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "each message says it")]
pub enum IdentityError {
    #[error("cannot {what} {}: {source}", .path.display())]
    File {
        what: &'static str,
        path: PathBuf,
        source: io::Error,
    },
    #[error("{} can be read by others (mode {mode:o}): chmod 600 it, or make a new authority if they may have read it", .path.display())]
    Open { path: PathBuf, mode: u32 },
    #[error("{name:?} must be a host name or an address, and not {AUTHORITY:?}")]
    Name { name: String },
    #[error("{}: {reason}; make new ones with `isolane rdma agent init`", .path.display())]
    Content { path: PathBuf, reason: String },
}

/// Makes the authority in `directory` where there is none, and certificates for `names`. Returns the new directories.
/// Nothing that exists is overwritten.
pub fn create(directory: &Path, names: &[String]) -> Result<Vec<PathBuf>, IdentityError> {
    create_at(directory, names, SystemTime::now())
}

/// As [`create`], at the time `now`. Fails as [`create`] does.
pub fn create_at(
    directory: &Path,
    names: &[String],
    now: SystemTime,
) -> Result<Vec<PathBuf>, IdentityError> {
    if let Some(name) = names.iter().find(|name| !is_name(name)) {
        return Err(IdentityError::Name { name: name.clone() });
    }
    make_directory(directory)?;
    let (issuer, authority) = authority(&directory.join(AUTHORITY), now)?;
    let mut made = Vec::new();
    for name in names {
        let place = directory.join(name);
        let content = |error: rcgen::Error| IdentityError::Content {
            path: place.clone(),
            reason: error.to_string(),
        };
        let key = KeyPair::generate().map_err(content)?;
        let mut params = CertificateParams::new(vec![name.clone()]).map_err(content)?;
        params.distinguished_name = common_name(name);
        limit(&mut params, now, CERTIFICATE_DAYS);
        params.use_authority_key_identifier_extension = true;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![
            ExtendedKeyUsagePurpose::ServerAuth,
            ExtendedKeyUsagePurpose::ClientAuth,
        ];
        let certificate = params.signed_by(&key, &issuer).map_err(content)?;
        make_directory(&place)?;
        write_new(&place.join(KEY_FILE), &key.serialize_pem())?;
        write_new(&place.join(CERTIFICATE_FILE), &certificate.pem())?;
        write_new(&place.join(AUTHORITY_FILE), &authority)?;
        made.push(place);
    }
    Ok(made)
}

/// A name that is both a subject and a directory.
fn is_name(name: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_.:".contains(c);
    name != AUTHORITY
        && name.starts_with(|c: char| c.is_ascii_alphanumeric() || c == ':')
        && name.len() <= 253
        && name.chars().all(plain)
        && ServerName::try_from(name.to_owned()).is_ok()
}

fn common_name(name: &str) -> DistinguishedName {
    let mut distinguished = DistinguishedName::new();
    distinguished.push(DnType::CommonName, name);
    distinguished
}

/// The authority in `directory`, made where it is not there, and its certificate as text.
fn authority(
    directory: &Path,
    now: SystemTime,
) -> Result<(Issuer<'static, KeyPair>, String), IdentityError> {
    let key_path = directory.join(KEY_FILE);
    let certificate_path = directory.join(AUTHORITY_FILE);
    let content = |error: rcgen::Error| IdentityError::Content {
        path: key_path.clone(),
        reason: error.to_string(),
    };
    // The same each time, so that a certificate made later names the same issuer.
    let mut params = CertificateParams::default();
    params.distinguished_name = common_name("isolane agents");
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    if key_path.exists() {
        check_mode(&key_path)?;
        let key = KeyPair::from_pem(&read(&key_path)?).map_err(content)?;
        return Ok((Issuer::new(params, key), read(&certificate_path)?));
    }
    limit(&mut params, now, AUTHORITY_DAYS);
    let key = KeyPair::generate().map_err(content)?;
    let text = params.self_signed(&key).map_err(content)?.pem();
    make_directory(directory)?;
    write_new(&key_path, &key.serialize_pem())?;
    write_new(&certificate_path, &text)?;
    Ok((Issuer::new(params, key), text))
}

/// Limits the validity of a certificate that is made at `now`.
fn limit(params: &mut CertificateParams, now: SystemTime, days: u64) {
    params.not_before = (now - EARLIER).into();
    params.not_after = (now + Duration::from_secs(days * 24 * 3_600)).into();
}

/// Whether a peer's verified certificates are a controller's.
pub(crate) fn is_controller(chain: Option<&[CertificateDer<'static>]>) -> bool {
    let name = ServerName::try_from(CONTROLLER).expect("a host name");
    let first = chain.and_then(|chain| chain.first());
    let parsed = first.and_then(|first| ParsedCertificate::try_from(first).ok());
    parsed.is_some_and(|parsed| verify_server_name(&parsed, &name).is_ok())
}

fn make_directory(path: &Path) -> Result<(), IdentityError> {
    let made = DirBuilder::new().recursive(true).mode(0o700).create(path);
    made.map_err(|source| IdentityError::File {
        what: "make",
        path: path.to_owned(),
        source,
    })
}

fn write_new(path: &Path, text: &str) -> Result<(), IdentityError> {
    let file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path);
    file.and_then(|mut file| file.write_all(text.as_bytes()))
        .map_err(|source| IdentityError::File {
            what: "write",
            path: path.to_owned(),
            source,
        })
}

fn read(path: &Path) -> Result<String, IdentityError> {
    fs::read_to_string(path).map_err(|source| IdentityError::File {
        what: "read",
        path: path.to_owned(),
        source,
    })
}

fn check_mode(path: &Path) -> Result<(), IdentityError> {
    let metadata = fs::metadata(path).map_err(|source| IdentityError::File {
        what: "read",
        path: path.to_owned(),
        source,
    })?;
    let mode = metadata.permissions().mode() & 0o777;
    match mode & 0o077 {
        0 => Ok(()),
        _ => Err(IdentityError::Open {
            path: path.to_owned(),
            mode,
        }),
    }
}

/// What a machine shows and whom it trusts.
struct Identity {
    roots: Arc<RootCertStore>,
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
}

fn load(directory: &Path) -> Result<Identity, IdentityError> {
    let path = |name: &str| directory.join(name);
    let content = |file: PathBuf| {
        move |error: String| IdentityError::Content {
            path: file,
            reason: error,
        }
    };
    let certificate = |name: &str| -> Result<CertificateDer<'static>, IdentityError> {
        let text = read(&path(name))?;
        CertificateDer::from_pem_slice(text.as_bytes())
            .map_err(|error| content(path(name))(error.to_string()))
    };
    let mut roots = RootCertStore::empty();
    roots
        .add(certificate(AUTHORITY_FILE)?)
        .map_err(|error| content(path(AUTHORITY_FILE))(error.to_string()))?;
    let text = read(&path(KEY_FILE))?;
    check_mode(&path(KEY_FILE))?;
    let key = PrivateKeyDer::from_pem_slice(text.as_bytes())
        .map_err(|error| content(path(KEY_FILE))(error.to_string()))?;
    Ok(Identity {
        roots: Arc::new(roots),
        chain: vec![certificate(CERTIFICATE_FILE)?],
        key,
    })
}

/// The TLS configuration of the controller, with the certificates in `directory`.
pub(crate) fn client(directory: &Path) -> Result<Arc<ClientConfig>, IdentityError> {
    let identity = load(directory)?;
    let config = ClientConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&TLS13])
        .expect("the provider has TLS 1.3")
        .with_root_certificates(identity.roots)
        .with_client_auth_cert(identity.chain, identity.key);
    config
        .map(Arc::new)
        .map_err(|error| IdentityError::Content {
            path: directory.to_owned(),
            reason: error.to_string(),
        })
}

/// The TLS configuration of the agent: a peer without a certificate of the authority is rejected.
pub(crate) fn server(directory: &Path) -> Result<Arc<ServerConfig>, IdentityError> {
    let identity = load(directory)?;
    let content = |reason: String| IdentityError::Content {
        path: directory.to_owned(),
        reason,
    };
    let verifier = WebPkiClientVerifier::builder_with_provider(identity.roots, provider())
        .build()
        .map_err(|error| content(error.to_string()))?;
    let config = ServerConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&TLS13])
        .expect("the provider has TLS 1.3")
        .with_client_cert_verifier(verifier)
        .with_single_cert(identity.chain, identity.key);
    config
        .map(Arc::new)
        .map_err(|error| content(error.to_string()))
}

fn provider() -> Arc<rustls::crypto::CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(names: &[&str]) -> Vec<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn an_authority_makes_certificates_now_and_later() {
        let directory = tempfile::tempdir().unwrap();
        let first = create(directory.path(), &names(&["controller", "nodea"])).unwrap();
        let later = create(directory.path(), &names(&["10.0.0.7"])).unwrap();
        for place in first.iter().chain(&later) {
            client(place).unwrap();
            server(place).unwrap();
            for file in [KEY_FILE, CERTIFICATE_FILE, AUTHORITY_FILE] {
                let mode = fs::metadata(place.join(file)).unwrap().permissions().mode();
                assert_eq!(mode & 0o777, 0o600, "{file}");
            }
        }
        let read = |place: &Path| fs::read(place.join(AUTHORITY_FILE)).unwrap();
        assert_eq!(read(&first[0]), read(&later[0]));
    }

    #[test]
    fn nothing_is_overwritten() {
        let directory = tempfile::tempdir().unwrap();
        create(directory.path(), &names(&["nodea"])).unwrap();
        let error = create(directory.path(), &names(&["nodea"])).unwrap_err();
        assert!(error.to_string().contains("key.pem"), "{error}");
    }

    #[test]
    fn a_key_that_others_can_read_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let place = create(directory.path(), &names(&["nodea"]))
            .unwrap()
            .remove(0);
        let key = place.join(KEY_FILE);
        fs::set_permissions(&key, fs::Permissions::from_mode(0o640)).unwrap();
        let error = client(&place).unwrap_err().to_string();
        assert!(error.contains("chmod 600"), "{error}");
    }

    #[test]
    fn names_that_are_paths_or_no_hosts_are_refused() {
        let directory = tempfile::tempdir().unwrap();
        for wrong in ["", "..", "a/b", "authority", "a b", "-x", "a..b"] {
            let error = create(directory.path(), &names(&[wrong])).unwrap_err();
            assert!(
                matches!(error, IdentityError::Name { .. }),
                "{wrong}: {error}"
            );
        }
    }
}
