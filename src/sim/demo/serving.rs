//! A demo's API server on a port, for clients from outside: who may come in, and the pace that time then keeps.
//! Clients that only read leave the run as it is, event by event; what files and addresses are fit is the command line's to say.

use std::{collections::BTreeMap, io, net::TcpListener};

use serde_json::Value;
use tokio::task::JoinHandle;

use crate::sim::{
    apiserver::{ApiServer, Identity, listen::Listening},
    pacer::{self, Speed},
};

/// What is to be served, and on which bound port.
pub struct Serving {
    pub listener: TcpListener,
    /// Who comes with which token.
    pub tokens: BTreeMap<String, Identity>,
    /// Put in place before the port answers: the roles of those who come.
    pub objects: Vec<Value>,
    /// Told once the port answers; what it returns ends the demo.
    pub opened: Box<dyn FnOnce() -> Result<(), String> + Send>,
}

/// The open port; it closes when this is dropped, and time is no longer held back.
#[derive(Debug)]
pub struct Open {
    _listening: Listening,
    pacer: JoinHandle<()>,
}

impl Drop for Open {
    fn drop(&mut self) {
        self.pacer.abort();
    }
}

impl Serving {
    /// Where it is found.
    pub fn url(&self) -> String {
        self.listener.local_addr().map(|address| format!("http://{address}")).unwrap_or_default()
    }

    /// Opens it on the server's runtime. From here on virtual time keeps pace with real time: it would race away while a client thinks.
    ///
    /// # Errors
    /// The port cannot be used after all, or an object is refused; the text says which.
    pub fn open(self, api: &ApiServer, speed: Speed) -> Result<Open, String> {
        for object in self.objects {
            let (kind, name) = (object["kind"].clone(), object["metadata"]["name"].clone());
            api.install(object).map_err(|refusal| format!("{kind} {name}: {}", refusal.message))?;
        }
        api.enforce_rbac(true);
        let failed = |error: io::Error| format!("the port cannot be served: {error}");
        self.listener.set_nonblocking(true).map_err(failed)?;
        let listener = tokio::net::TcpListener::from_std(self.listener).map_err(failed)?;
        let listening = api.serve_by_token(listener, self.tokens).map_err(failed)?;
        (self.opened)()?;
        Ok(Open { _listening: listening, pacer: tokio::spawn(pacer::hold_back(speed)) })
    }
}
