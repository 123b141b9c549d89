//! `demo --serve`: the address, the users with their tokens, and the kubeconfig file, which belongs to this process while it runs.
//! The port is the simulation's to answer; no file that somebody else wrote is ever touched.

use std::{
    collections::BTreeMap,
    env, fs,
    io::{self, Read, Write},
    net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener},
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
};

use clap::Args;
use kube::config::Kubeconfig;
use serde_json::{Value, json};

use super::{
    Failure,
    manifests::{Manifests, RoleName, render},
};
use crate::sim::{apiserver::Identity, demo::serving::Serving, scenarios::kernel_module};

#[derive(Debug, Clone, Default, Args)]
pub struct Serve {
    /// Serve the simulated cluster to kubectl and others, on this loopback address, until told to stop; port 0 picks a free one
    #[arg(long, value_name = "ADDR", value_parser = loopback, requires = "kubeconfig_out")]
    pub serve: Option<SocketAddr>,
    /// Where to write the kubeconfig of the served cluster; it is removed at the end
    #[arg(long, value_name = "FILE", requires = "serve")]
    pub kubeconfig_out: Option<PathBuf>,
}

/// `127.0.0.1:8001`, `[::1]:8001`, `localhost:8001`.
fn loopback(text: &str) -> Result<SocketAddr, String> {
    let address: SocketAddr = match text.strip_prefix("localhost:") {
        Some(port) => SocketAddr::new(
            IpAddr::V4(Ipv4Addr::LOCALHOST),
            port.parse().map_err(|_| format!("{port:?} is no port number; want 127.0.0.1:PORT"))?,
        ),
        None => text.parse().map_err(|_| "want ADDRESS:PORT, such as 127.0.0.1:8001 or [::1]:8001".to_owned())?,
    };
    if !address.ip().is_loopback() {
        return Err(format!(
            "{} is no loopback address: the simulated API server speaks plain HTTP and is made for this machine alone; \
             want 127.0.0.1:PORT or [::1]:PORT",
            address.ip()
        ));
    }
    Ok(address)
}

/// The users and what they may do; the first one's context is current.
const USERS: [(&str, Option<RoleName>); 3] =
    [("admin", None), ("operator", Some(RoleName::Operator)), ("viewer", Some(RoleName::Viewer))];

/// By this entry of `extensions` a file is known as one of ours.
const MARK: &str = "lockkeeper.dev/demo";

/// A bound port, and its kubeconfig, which is there from when the port answers; dropping it removes the file.
pub struct Door {
    /// Taken by the simulation.
    pub serving: Option<Serving>,
    pub url: String,
    pub file: PathBuf,
    text: String,
}

impl Drop for Door {
    fn drop(&mut self) {
        let _ = fs::remove_file(beside(&self.file));
        // A later demo may have written its own there.
        if fs::read_to_string(&self.file).is_ok_and(|there| there == self.text) {
            let _ = fs::remove_file(&self.file);
        }
    }
}

impl Serve {
    /// Binds the port and prepares the file. None: nothing is to be served. `say`: tell people when the port answers.
    pub fn open(&self, say: bool) -> Result<Option<Door>, Failure> {
        let (Some(address), Some(file)) = (self.serve, self.kubeconfig_out.as_ref()) else { return Ok(None) };
        // What can be seen to be wrong is said before anything is done.
        ours_to_write(file)?;
        let listener = TcpListener::bind(address).map_err(|error| {
            let hint = if error.kind() == io::ErrorKind::AddrInUse { "; port 0 picks a free one" } else { "" };
            Failure::environment(format!("cannot listen on --serve {address}: {error}{hint}"))
        })?;
        let bound = listener
            .local_addr()
            .map_err(|error| Failure::environment(format!("cannot listen on --serve {address}: {error}")))?;
        let tokens: BTreeMap<String, Identity> =
            USERS.iter().map(|(name, role)| Ok((token()?, identity(name, role.is_some())))).collect::<Result<_, Failure>>()?;
        let url = format!("http://{bound}");
        let text = kubeconfig(&url, &tokens);
        // From here on whatever is left beside goes with the door.
        let mut door = Door { serving: None, url, file: file.clone(), text };
        write_beside(file, &door.text)?;
        let (from, to, hint) = (beside(file), file.clone(), door.hint());
        let opened = Box::new(move || {
            fs::rename(&from, &to).map_err(|error| format!("cannot write --kubeconfig-out {}: {error}", to.display()))?;
            if say {
                let _ = writeln!(io::stderr(), "{hint}");
            }
            Ok(())
        });
        door.serving = Some(Serving { listener, tokens, objects: roles()?, opened });
        Ok(Some(door))
    }
}

impl Door {
    /// How to use it, for people.
    pub fn hint(&self) -> String {
        format!("the simulated cluster is served on {}: kubectl --kubeconfig {} get nodes", self.url, self.file.display())
    }
}

fn identity(name: &str, with_role: bool) -> Identity {
    // The client's name stands in logs beside the actors' names.
    let identity = Identity::new(format!("outside-{name}"));
    if with_role { identity.user(name) } else { Identity { user: name.to_owned(), ..identity } }
}

/// 128 bits of the operating system's chance: whoever can read the file may come in.
fn token() -> Result<String, Failure> {
    let mut bytes = [0; 16];
    fs::File::open("/dev/urandom")
        .and_then(|mut chance| chance.read_exact(&mut bytes))
        .map_err(|error| Failure::environment(format!("cannot read /dev/urandom for a token: {error}")))?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

/// The printed roles, bound to their users.
fn roles() -> Result<Vec<Value>, Failure> {
    let mut objects = Vec::new();
    for (name, role) in USERS {
        let Some(role) = role else { continue };
        let wanted = Manifests { role: vec![role], to_user: vec![name.to_owned()], ..Manifests::default() };
        let text =
            render(&wanted, None).map_err(|error| Failure::environment(format!("cannot write the role {name}: {error}")))?;
        let documents: Vec<Value> = serde_saphyr::from_multiple(&text)
            .map_err(|error| Failure::environment(format!("cannot read the role {name}: {error}")))?;
        // Two roles may come with the same binding or part.
        objects.extend(documents.into_iter().filter(|object| object["kind"] != "Namespace"));
    }
    Ok(objects)
}

/// JSON, which is YAML. The token is the head of the path: kubectl sends none in a header without TLS.
fn kubeconfig(url: &str, tokens: &BTreeMap<String, Identity>) -> String {
    let token_of = |name: &str| tokens.iter().find(|(_, identity)| identity.user == name).map_or("", |(token, _)| token.as_str());
    let context = |name: &str| if name == "admin" { "lockkeeper-demo".to_owned() } else { format!("lockkeeper-demo-{name}") };
    let each = |make: &dyn Fn(&str) -> Value| USERS.iter().map(|(name, _)| make(name)).collect::<Vec<Value>>();
    let config = json!({
        "apiVersion": "v1",
        "kind": "Config",
        "extensions": [{"name": MARK, "extension": {"server": url}}],
        "current-context": context("admin"),
        "clusters": each(&|name| json!({"name": context(name), "cluster": {"server": format!("{url}/as/{}", token_of(name))}})),
        "users": each(&|name| json!({"name": context(name), "user": {"token": token_of(name)}})),
        "contexts": each(&|name| json!({
            "name": context(name),
            "context": {"cluster": context(name), "user": context(name), "namespace": kernel_module::NAMESPACE},
        })),
    });
    format!("{config:#}\n")
}

/// Refuses what a demo has no business with: the user's own kubeconfig, links, and files that no demo wrote.
fn ours_to_write(file: &Path) -> Result<(), Failure> {
    let refuse = |why: String| Failure::usage(format!("--kubeconfig-out {}: {why}", file.display()));
    let name = file.file_name().ok_or_else(|| refuse("this names no file".to_owned()))?;
    let folder = match file.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    let folder = folder.canonicalize().map_err(|error| refuse(format!("its folder cannot be used: {error}")))?;
    let own = env::var_os("HOME").and_then(|home| Path::new(&home).join(".kube").canonicalize().ok());
    if own.is_some_and(|own| own == folder) && name == "config" {
        return Err(refuse("this is your own kubeconfig; name another file".to_owned()));
    }
    match fs::symlink_metadata(file) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(refuse(error.to_string())),
        Ok(there) if there.is_symlink() => return Err(refuse("this is a symbolic link; name the file itself".to_owned())),
        Ok(there) if !there.is_file() => return Err(refuse("this is there and is no file".to_owned())),
        Ok(_) => {}
    }
    let former = Kubeconfig::read_from(file).is_ok_and(|config| {
        config.extensions.is_some_and(|extensions| extensions.iter().any(|extension| extension.name == MARK))
    });
    if former {
        return Ok(());
    }
    Err(refuse("this file is there and no demo wrote it; name another one, or remove it".to_owned()))
}

/// Where it is written first, so that it appears as a whole.
fn beside(file: &Path) -> PathBuf {
    let mut beside = file.as_os_str().to_owned();
    beside.push(format!(".{}", std::process::id()));
    beside.into()
}

/// Nobody else can read it.
fn write_beside(file: &Path, text: &str) -> Result<(), Failure> {
    let mut new = fs::OpenOptions::new();
    let written = new.write(true).create_new(true).mode(0o600).open(beside(file)).and_then(|mut out| {
        out.write_all(text.as_bytes())?;
        out.sync_all()
    });
    written.map_err(|error| Failure::environment(format!("cannot write --kubeconfig-out {}: {error}", file.display())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_loopback_addresses_are_served_on() {
        for fit in ["127.0.0.1:0", "127.0.0.9:8001", "[::1]:0", "localhost:8001"] {
            assert!(loopback(fit).is_ok(), "{fit}");
        }
        for wrong in ["0.0.0.0:0", "[::]:8001", "192.168.1.1:80", "10.0.0.1:1", "[::ffff:10.0.0.1]:1"] {
            assert!(loopback(wrong).unwrap_err().contains("no loopback address"), "{wrong}");
        }
        for wrong in ["", "127.0.0.1", ":8001", "localhost", "localhost:x", "example.com:80"] {
            assert!(loopback(wrong).unwrap_err().contains("want"), "{wrong}");
        }
    }

    #[test]
    fn a_file_is_replaced_only_if_a_demo_wrote_it() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        let text = kubeconfig("http://127.0.0.1:1", &BTreeMap::from([("t".to_owned(), identity("admin", false))]));
        write_beside(&at("former"), &text).unwrap();
        fs::rename(beside(&at("former")), at("former")).unwrap();
        assert_eq!(ours_to_write(&at("former")), Ok(()));
        assert_eq!(ours_to_write(&at("new")), Ok(()));
        fs::write(at("other"), "apiVersion: v1\nkind: Config\n").unwrap();
        fs::write(at("text"), "hello").unwrap();
        fs::create_dir(at("folder")).unwrap();
        std::os::unix::fs::symlink(at("former"), at("link")).unwrap();
        for (name, word) in [("other", "no demo wrote it"), ("text", "no demo"), ("folder", "no file"), ("link", "link")] {
            assert!(ours_to_write(&at(name)).unwrap_err().to_string().contains(word), "{name}");
        }
        assert!(ours_to_write(&at("none/file")).unwrap_err().to_string().contains("folder"));
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 5, "nothing was left beside");
    }

    #[test]
    fn tokens_are_long_and_differ() {
        let (a, b) = (token().unwrap(), token().unwrap());
        assert!(a.len() == 32 && a != b, "{a} {b}");
    }
}
