//! CSI nodeplugins under the real DaemonSet and attach-detach controllers. Table of contents; `suite` is what they all stand on.

mod refused;
mod remount;
mod restart;
mod revision;
mod suite;
mod upgrade;
