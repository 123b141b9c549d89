//! `lockkeeper reconcile` and other commands of it as processes on a site: started, killed, stopped and continued, and asked how they are.

use std::{
    fs::{self, File},
    io::{Read, Write},
    net::TcpStream,
    path::PathBuf,
    process::{Child, Command, ExitStatus, Stdio},
    time::Duration,
};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::{site::Site, support::controlplane::User};

/// A process. Killed when it is dropped.
pub struct Process {
    child: Child,
    /// Standard output and standard error.
    pub log: PathBuf,
}

impl Process {
    /// `lockkeeper ARGS` with the rights of a user; `name` is unique on the site.
    pub fn start(site: &Site, user: User, name: &str, args: &[&str]) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_lockkeeper"));
        command.args(args).arg("--kubeconfig").arg(site.plane.kubeconfig(user));
        Process::over(&mut command, site.plane.dir().join(format!("{name}.log")))
    }

    /// Any command of it, with this log.
    pub fn over(command: &mut Command, log: PathBuf) -> Self {
        let out = File::create(&log).expect("a log file");
        let command = command.stdin(Stdio::null()).stdout(out.try_clone().expect("a log file")).stderr(out);
        Self { child: command.spawn().expect("run lockkeeper"), log }
    }

    /// The reconciler.
    pub fn reconcile(site: &Site, user: User, name: &str) -> Self {
        Process::start(site, user, name, &["reconcile", "--admin-address", "127.0.0.1:0", "--identity", name])
    }

    pub fn kill(&mut self) {
        self.child.kill().expect("kill lockkeeper");
        self.child.wait().expect("wait for lockkeeper");
    }

    pub fn stop(&self) {
        self.signal(Signal::STOP);
    }

    pub fn go_on(&self) {
        self.signal(Signal::CONT);
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).expect("signal lockkeeper");
    }

    /// Tells it to end, and waits until it has.
    pub fn end(&mut self) -> ExitStatus {
        self.signal(Signal::TERM);
        self.child.wait().expect("wait for lockkeeper")
    }

    /// None while it runs.
    pub fn ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().expect("wait for lockkeeper")
    }

    /// Waits until it ends by itself, and returns how. Told beside a wait for what it does, so that an early end has its own words.
    pub async fn exit(&mut self) -> ExitStatus {
        loop {
            if let Some(end) = self.ended() {
                return end;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    pub fn said(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// What a reconciler says of itself, when it does.
    pub fn diagnostics(&self) -> Option<Value> {
        let said = self.said();
        let line = said.lines().find_map(|line| {
            let line: Value = serde_json::from_str(line).ok()?;
            line["admin_address"].as_str().map(str::to_owned)
        })?;
        let mut stream = TcpStream::connect(line).ok()?;
        stream.set_read_timeout(Some(Duration::from_secs(5))).ok()?;
        stream.write_all(b"GET /diagnostics HTTP/1.1\r\nhost: admin\r\nconnection: close\r\n\r\n").ok()?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).ok()?;
        serde_json::from_str(answer.split_once("\r\n\r\n")?.1).ok()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // A stopped process dies of SIGKILL too.
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

/// It leads, and every watch that it needs is live.
pub fn is_well(diagnostics: &Value) -> bool {
    let watches = diagnostics["watches"].as_array().map(Vec::as_slice).unwrap_or_default();
    let live = |watch: &Value| watch["required"] != true || watch["state"] == "Live";
    diagnostics["lease"]["ours"] == true && !watches.is_empty() && watches.iter().all(live)
}

/// It says itself that what it knows may be old: it does not lead, and no watch that it needs is live.
pub fn knows_of_the_outage(diagnostics: &Value) -> bool {
    let watches = diagnostics["watches"].as_array().map(Vec::as_slice).unwrap_or_default();
    let live = watches.iter().filter(|watch| watch["required"] == true && watch["state"] == "Live").count();
    diagnostics["lease"]["ours"] == false && diagnostics["lease"]["problem"].is_string() && live == 0
}
