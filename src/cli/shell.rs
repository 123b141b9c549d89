//! `lockkeeper completions` and `lockkeeper man`, both made from the arguments' own declarations.

use clap::{Args, CommandFactory};
use clap_complete::Shell;

use super::{Cli, Exit, Failure, out};

#[derive(Debug, Clone, Args)]
pub struct Completions {
    /// For which shell
    #[arg(value_enum)]
    pub shell: Shell,
}

/// Made in memory first: the generator panics when it cannot write, and `| head` is no reason to.
pub fn completions(wanted: &Completions) -> Result<Exit, Failure> {
    let mut script = Vec::new();
    clap_complete::generate(wanted.shell, &mut Cli::command(), "lockkeeper", &mut script);
    out::print(&String::from_utf8_lossy(&script))
}

/// One page: the program, then each subcommand.
pub fn man() -> Result<Exit, Failure> {
    let failed = |error: std::io::Error| Failure::environment(format!("cannot write the manual page: {error}"));
    let mut page = Vec::new();
    let command = Cli::command();
    clap_mangen::Man::new(command.clone()).render(&mut page).map_err(failed)?;
    for sub in command.get_subcommands().filter(|sub| !sub.is_hide_set() && sub.get_name() != "help") {
        let title = format!("lockkeeper {}", sub.get_name());
        let man = clap_mangen::Man::new(sub.clone().display_name(title.clone()).bin_name(title.clone()));
        page.extend_from_slice(format!(".SH \"{}\"\n", title.to_uppercase()).as_bytes());
        man.render_description_section(&mut page).map_err(failed)?;
        man.render_synopsis_section(&mut page).map_err(failed)?;
        man.render_options_section(&mut page).map_err(failed)?;
    }
    out::print(&String::from_utf8_lossy(&page))
}
