//! A real Kubernetes control plane for tests: builds the program of `tests/controlplane` once, starts it, and speaks with it.
//! It owns the processes and their folder; what a test does there is the test's.

use std::{
    env,
    ffi::OsStr,
    fs,
    io::{self, BufRead, BufReader, Read, Write},
    path::{Path, PathBuf},
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
    sync::{Mutex, Once, OnceLock, PoisonError},
};

use kube::config::{KubeConfigOptions, Kubeconfig};
use serde::Deserialize;
use sha2::{Digest, Sha256};

/// Who speaks to the API server. Only `Admin` has rights; the others have those that a test binds to them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum User {
    Admin,
    Operator,
    Reconciler,
    Viewer,
}

impl User {
    /// The name that RBAC subjects use.
    pub fn name(self) -> &'static str {
        match self {
            User::Admin => "admin",
            User::Operator => "operator",
            User::Reconciler => "reconciler",
            User::Viewer => "viewer",
        }
    }
}

/// A process of the control plane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Component {
    Etcd,
    ApiServer,
    ControllerManager,
    Scheduler,
}

impl Component {
    fn name(self) -> &'static str {
        match self {
            Component::Etcd => "etcd",
            Component::ApiServer => "kube-apiserver",
            Component::ControllerManager => "kube-controller-manager",
            Component::Scheduler => "kube-scheduler",
        }
    }
}

/// Why there is no control plane to test on.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error("the real control plane is built from Go modules and `go` is not on the PATH: install Go 1.26 or newer")]
    NoGo,
    #[error("neither XDG_CACHE_HOME nor HOME is set, so there is no place to keep the control plane")]
    NoCacheFolder,
    #[error("build.sh of {} ended with {status}; its output is above", .folder.display())]
    Build { folder: PathBuf, status: std::process::ExitStatus },
    #[error("the control plane did not start: {why}; logs are in {}", .dir.display())]
    Start { why: String, dir: PathBuf },
    #[error("cannot {what}: {error}")]
    Io { what: String, error: io::Error },
}

impl StartError {
    fn io(what: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        move |error| StartError::Io { what: what.into(), error }
    }
}

/// What kubectl said.
#[derive(Debug)]
pub struct Said {
    pub ok: bool,
    pub stdout: String,
    pub stderr: String,
}

impl Said {
    /// Standard output of a command that must succeed.
    #[track_caller]
    pub fn expect_ok(self) -> String {
        assert!(self.ok, "kubectl failed: {}{}", self.stderr, self.stdout);
        self.stdout
    }

    /// Standard error of a command that must be refused.
    #[track_caller]
    pub fn expect_refusal(self) -> String {
        assert!(!self.ok, "kubectl was expected to fail and said: {}", self.stdout);
        self.stderr
    }
}

/// The line that `up` prints once it answers.
#[derive(Debug, Deserialize)]
struct Ready {
    server: String,
    kubeconfigs: std::collections::BTreeMap<String, PathBuf>,
    pids: std::collections::BTreeMap<String, u32>,
}

/// A running control plane. Its processes end, and its folder goes, when it is dropped or when the test process ends in any way:
/// `up` ends at the end of its standard input.
pub struct ControlPlane {
    binary: PathBuf,
    dir: PathBuf,
    ready: Ready,
    process: Mutex<Process>,
}

struct Process {
    child: Child,
    commands: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
}

impl ControlPlane {
    /// The one that all tests of this binary share, started by the first that asks. Tests use namespaces, node names and node
    /// selectors of their own there, and leave its processes alone.
    ///
    /// `None` means that this machine cannot build it and that the test is to return: said once on standard error. With `CI=true`
    /// that is a failure.
    pub fn shared() -> Option<&'static ControlPlane> {
        static SHARED: OnceLock<Result<ControlPlane, StartError>> = OnceLock::new();
        // A machine that does not get its turn on a busy computer is not dead.
        let flags = [(Component::ControllerManager, "--node-monitor-grace-period=60s")];
        SHARED.get_or_init(|| ControlPlane::start(&flags)).as_ref().map_err(skip_or_fail).ok()
    }

    /// One for the caller alone, to kill parts of, or to run an engine on. `flags` are more flags by component.
    /// `None` as in [`ControlPlane::shared`].
    pub fn own(flags: &[(Component, &str)]) -> Option<ControlPlane> {
        ControlPlane::own_with(flags, &[])
    }

    /// As [`ControlPlane::own`], with files that the flags name: `$DIR` in a flag is [`ControlPlane::dir`], where they are.
    pub fn own_with(flags: &[(Component, &str)], files: &[(&str, &str)]) -> Option<ControlPlane> {
        ControlPlane::start_with(flags, files).map_err(|error| skip_or_fail(&error)).ok()
    }

    /// Builds the program if it is not there yet, and starts it.
    pub fn start(flags: &[(Component, &str)]) -> Result<ControlPlane, StartError> {
        ControlPlane::start_with(flags, &[])
    }

    fn start_with(flags: &[(Component, &str)], files: &[(&str, &str)]) -> Result<ControlPlane, StartError> {
        let binary = binary()?;
        let keep = env::var_os("CONTROLPLANE_KEEP").is_some();
        let dir =
            tempfile::Builder::new().prefix("controlplane-").tempdir().map_err(StartError::io("make a temporary folder"))?.keep();
        for (name, text) in files {
            fs::write(dir.join(name), text).map_err(StartError::io(format!("write {}", dir.join(name).display())))?;
        }
        let mut up = Command::new(&binary);
        up.arg("up").arg("--dir").arg(&dir);
        if keep {
            say(&format!("the control plane's data and logs stay in {}", dir.display()));
        } else {
            up.arg("--discard");
        }
        for (component, flag) in flags {
            let flag = flag.replace("$DIR", &dir.display().to_string());
            up.arg("--arg").arg(format!("{}={flag}", component.name()));
        }
        let mut child = up
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(StartError::io(format!("run {}", binary.display())))?;
        let commands = child.stdin.take();
        let failed = |why: &str| StartError::Start { why: why.to_owned(), dir: dir.clone() };
        let mut answers = BufReader::new(child.stdout.take().ok_or_else(|| failed("no standard output"))?);
        let mut line = String::new();
        answers.read_line(&mut line).map_err(StartError::io("read from the control plane"))?;
        let ready = serde_json::from_str(&line).map_err(|error| failed(&format!("{error} in its first line {line:?}")))?;
        Ok(ControlPlane { binary, dir, ready, process: Mutex::new(Process { child, commands, answers }) })
    }

    /// The API server's URL.
    pub fn server(&self) -> &str {
        &self.ready.server
    }

    /// Logs (`COMPONENT.log`), kubeconfigs and data; gone with the control plane.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    pub fn kubeconfig(&self, user: User) -> &Path {
        self.ready
            .kubeconfigs
            .get(user.name())
            .map_or_else(|| panic!("the control plane made no kubeconfig for {}", user.name()), PathBuf::as_path)
    }

    /// A configuration with the library's own retries off, as all of lockkeeper's clients have.
    pub async fn config(&self, user: User) -> kube::Config {
        let kubeconfig = Kubeconfig::read_from(self.kubeconfig(user)).expect("kubeconfig of the control plane");
        let mut config = kube::Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default())
            .await
            .expect("kubeconfig of the control plane");
        config.default_retry = false;
        config
    }

    /// A client that lives as long as the caller's runtime.
    pub async fn client(&self, user: User) -> kube::Client {
        kube::Client::try_from(self.config(user).await).expect("client of the control plane")
    }

    /// Runs kubectl of the same version as admin.
    pub fn kubectl<I, S>(&self, args: I) -> Said
    where
        I: IntoIterator<Item = S>,
        S: AsRef<OsStr>,
    {
        self.kubectl_as(User::Admin, args, "")
    }

    /// Runs kubectl as a user, with text on its standard input (for `-f -`).
    pub fn kubectl_as<I, S>(&self, user: User, args: I, input: &str) -> Said
    where
        I: IntoIterator<Item = S>,
        S: AsRef<OsStr>,
    {
        let mut child = Command::new(&self.binary)
            .arg("kubectl")
            .args(args)
            .env("KUBECONFIG", self.kubeconfig(user))
            // kubectl keeps what it discovered under HOME, by port; ports are used again.
            .env("HOME", &self.dir)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("run kubectl");
        let mut stdin = child.stdin.take().expect("standard input of kubectl");
        let output = std::thread::scope(|scope| {
            // A kubectl that ends without reading breaks the pipe; what it said tells more than that.
            scope.spawn(move || stdin.write_all(input.as_bytes()).ok());
            child.wait_with_output().expect("output of kubectl")
        });
        Said {
            ok: output.status.success(),
            stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }

    /// The process id that a component had at the start.
    pub fn first_pid(&self, component: Component) -> Option<u32> {
        self.ready.pids.get(component.name()).copied()
    }

    /// Ends a component with SIGKILL.
    pub fn kill(&self, component: Component) {
        self.command("kill", component);
    }

    /// Starts a killed component again, with the same flags, port and data; an API server is awaited. Returns its process id.
    pub fn start_again(&self, component: Component) -> u32 {
        let answer = self.command("start", component);
        answer.trim_start_matches("ok").trim().parse().unwrap_or_else(|_| panic!("no process id in {answer:?}"))
    }

    /// Freezes a component with SIGSTOP.
    pub fn stop(&self, component: Component) {
        self.command("stop", component);
    }

    /// Lets a frozen component go on.
    pub fn go_on(&self, component: Component) {
        self.command("continue", component);
    }

    fn command(&self, verb: &str, component: Component) -> String {
        let mut process = self.process.lock().unwrap_or_else(PoisonError::into_inner);
        let Process { commands: Some(commands), answers, .. } = &mut *process else {
            panic!("the control plane was shut down");
        };
        writeln!(commands, "{verb} {}", component.name()).expect("send a command to the control plane");
        let mut answer = String::new();
        answers.read_line(&mut answer).expect("read the control plane's answer");
        assert!(answer.starts_with("ok"), "{verb} {}: {}", component.name(), answer.trim());
        answer
    }
}

impl Drop for ControlPlane {
    fn drop(&mut self) {
        let process = self.process.get_mut().unwrap_or_else(PoisonError::into_inner);
        drop(process.commands.take());
        // It kills its children and removes the folder; a failure here must not hide the test's own.
        process.child.wait().ok();
    }
}

/// The path of the program: in the user's cache under a name made of the hash of its sources, built if it is not there.
pub fn binary() -> Result<PathBuf, StartError> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/controlplane");
    let cache = env::var_os("XDG_CACHE_HOME")
        .filter(|folder| !folder.is_empty())
        .map(PathBuf::from)
        .or_else(|| env::var_os("HOME").map(|home| Path::new(&home).join(".cache")))
        .ok_or(StartError::NoCacheFolder)?
        .join("lockkeeper");
    let binary = cache.join(format!("controlplane-{}", hash(&source)?));
    if binary.exists() {
        return Ok(binary);
    }
    fs::create_dir_all(&cache).map_err(StartError::io(format!("make {}", cache.display())))?;
    let lock_path = cache.join("controlplane.lock");
    let lock = fs::File::create(&lock_path).map_err(StartError::io(format!("open {}", lock_path.display())))?;
    if lock.try_lock().is_err() {
        say("waiting for another process that builds the control plane for tests");
        lock.lock().map_err(StartError::io(format!("lock {}", lock_path.display())))?;
        if binary.exists() {
            return Ok(binary);
        }
    }
    if !go_is_there() {
        return Err(StartError::NoGo);
    }
    say(&format!(
        "building the Kubernetes control plane for tests into {} (once; about seven minutes on two cores)",
        binary.display()
    ));
    let unfinished = cache.join(format!("unfinished-{}", std::process::id()));
    let status = Command::new("sh")
        .arg(source.join("build.sh"))
        .arg(&unfinished)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .status()
        .map_err(StartError::io("run sh"))?;
    if !status.success() {
        fs::remove_file(&unfinished).ok();
        return Err(StartError::Build { folder: source, status });
    }
    fs::rename(&unfinished, &binary).map_err(StartError::io(format!("rename to {}", binary.display())))?;
    Ok(binary)
}

fn go_is_there() -> bool {
    Command::new("go")
        .arg("version")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success())
}

/// Over all files but the README, names included.
fn hash(source: &Path) -> Result<String, StartError> {
    let listing = || StartError::io(format!("list {}", source.display()));
    let mut files = Vec::new();
    for entry in fs::read_dir(source).map_err(listing())? {
        let path = entry.map_err(listing())?.path();
        if path.is_file() && path.extension().is_none_or(|extension| extension != "md") {
            files.push(path);
        }
    }
    files.sort();
    let mut digest = Sha256::new();
    for path in files {
        let mut content = Vec::new();
        fs::File::open(&path)
            .and_then(|mut file| file.read_to_end(&mut content))
            .map_err(StartError::io(format!("read {}", path.display())))?;
        digest.update(path.file_name().unwrap_or_default().as_encoded_bytes());
        digest.update([0]);
        digest.update(content.len().to_be_bytes());
        digest.update(content);
    }
    Ok(digest.finalize().iter().take(6).map(|byte| format!("{byte:02x}")).collect())
}

fn skip_or_fail(error: &StartError) {
    let in_ci = env::var("CI").is_ok_and(|value| value == "true");
    if in_ci || !matches!(error, StartError::NoGo) {
        panic!("{error}");
    }
    static SAID: Once = Once::new();
    SAID.call_once(|| say(&format!("tests on the real control plane skipped: {error}")));
}

/// Says a line on standard error past the capture of the test harness, which would keep it until the test fails.
fn say(line: &str) {
    writeln!(io::stderr(), "{line}").ok();
}
