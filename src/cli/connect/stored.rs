//! The credentials of a context as they are on disk now: a kubeconfig that somebody renews while lockkeeper runs. When they are asked for is
//! `cluster::credentials`'.

use std::{fs, path::Path};

use futures::future::BoxFuture;
use http::Uri;
use kube::{Client, Config, config::Kubeconfig};
use sha2::{Digest, Sha256};

use super::{Chosen, Terminal, chain, config, kubeconfig, shown, tuned};
use crate::{cli::Global, cluster::credentials::Source};

/// Where the token of a pod's service account is.
const POD_TOKEN: &str = "/var/run/secrets/kubernetes.io/serviceaccount/token";

#[derive(Clone)]
pub struct Stored {
    /// With the context that was chosen at the start: `kubectl config use-context` moves nobody.
    global: Global,
    /// `context lab`.
    context: String,
    /// The kubeconfig; None: the pod's own service account.
    source: Option<String>,
    /// Where requests go: the cluster is chosen at the start, too.
    server: Uri,
}

impl Stored {
    pub fn new(global: &Global, context: &str, source: Option<String>, config: &Config) -> Self {
        let chosen = context.strip_prefix("context ").map(str::to_owned);
        let global = Global { context: chosen.or_else(|| global.context.clone()), ..global.clone() };
        Self { global, context: context.to_owned(), source, server: config.cluster_url.clone() }
    }

    async fn made(self) -> Result<Client, String> {
        let config = if self.source.is_none() {
            tuned(Config::incluster().map_err(|error| chain(&error))?)
        } else {
            // Nobody sits there who could be asked for a password.
            let Chosen { config, .. } = config(&self.global, Terminal::Taken).await.map_err(|error| error.to_string())?;
            config
        };
        if config.cluster_url != self.server {
            return Err(format!(
                "{} names another server now, {}; start lockkeeper again to go there",
                self.context,
                shown(&config.cluster_url.to_string())
            ));
        }
        #[expect(clippy::disallowed_methods, reason = "a credential plugin may take long, and there is no simulated clock here")]
        let made = tokio::task::spawn_blocking(move || Client::try_from(config).map_err(|error| chain(&error)));
        made.await.unwrap_or_else(|error| Err(error.to_string()))
    }
}

impl Source for Stored {
    fn fingerprint(&self) -> Vec<u8> {
        let mut hash = Sha256::new();
        if self.source.is_none() {
            hash.update(fs::read(POD_TOKEN).unwrap_or_default());
        } else if let Ok(Some((_, kubeconfig))) = kubeconfig(&self.global) {
            hash.update(serde_json::to_vec(&kubeconfig).unwrap_or_default());
            for file in files(&kubeconfig) {
                hash.update(fs::read(Path::new(&file)).unwrap_or_default());
            }
        }
        hash.finalize().to_vec()
    }

    fn connect(&self) -> BoxFuture<'static, Result<Client, String>> {
        Box::pin(self.clone().made())
    }

    fn name(&self) -> String {
        format!("the credentials of {}", self.context)
    }

    fn advice(&self) -> String {
        match &self.source {
            Some(source) => format!("log in again, or renew them in {source}; it is read again by itself"),
            None => "is its ServiceAccount still there? Its token is read again by itself".to_owned(),
        }
    }
}

/// Files that a kubeconfig names, credentials and authorities.
fn files(kubeconfig: &Kubeconfig) -> Vec<String> {
    let users = kubeconfig.auth_infos.iter().filter_map(|user| user.auth_info.as_ref());
    let of_users = users.flat_map(|user| [&user.token_file, &user.client_certificate, &user.client_key]);
    let clusters = kubeconfig.clusters.iter().filter_map(|cluster| cluster.cluster.as_ref());
    of_users.chain(clusters.map(|cluster| &cluster.certificate_authority)).flatten().cloned().collect()
}
