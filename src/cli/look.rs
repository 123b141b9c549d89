//! How the console looks and is steered: flags over environment over `config.toml` over what is built in. Nothing here is ever written.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use clap::{Args, ValueEnum};
use serde::Deserialize;

use super::Failure;
use crate::console::{keymap_file, theme::ThemeName};

const HEADING: &str = "Options of the console";

#[derive(Debug, Clone, Default, Args)]
pub struct Look {
    /// Colours; NO_COLOR in the environment makes it mono [env: LOCKKEEPER_THEME]
    #[arg(long, value_enum, value_name = "NAME", help_heading = HEADING)]
    pub theme: Option<ThemeName>,
    /// Draw with ASCII only; without it, as the locale says [env: LOCKKEEPER_ASCII]
    #[arg(long, help_heading = HEADING, overrides_with = "no_ascii")]
    pub ascii: bool,
    /// Draw with box characters whatever the locale says
    #[arg(long, help_heading = HEADING, overrides_with = "ascii")]
    pub no_ascii: bool,
    /// Wheel and clicks; the terminal then selects text only with shift [env: LOCKKEEPER_MOUSE]
    #[arg(long, help_heading = HEADING, overrides_with = "no_mouse")]
    pub mouse: bool,
    /// Leave the mouse to the terminal: the default
    #[arg(long, help_heading = HEADING, overrides_with = "mouse")]
    pub no_mouse: bool,
    /// Keys of your own over the built-in ones, instead of $XDG_CONFIG_HOME/lockkeeper/keymap.toml [env: LOCKKEEPER_KEYMAP]
    #[arg(long, value_name = "FILE", help_heading = HEADING)]
    pub keymap: Option<PathBuf>,
}

/// What came of all layers.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Looks {
    pub theme: ThemeName,
    /// None: as the locale says.
    pub ascii: Option<bool>,
    pub mouse: bool,
    /// None: the user's file, if there is one.
    pub keymap: Option<PathBuf>,
}

/// `config.toml`. A context may have settings of its own: a theme that tells production apart.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    theme: Option<String>,
    ascii: Option<bool>,
    mouse: Option<bool>,
    keymap: Option<PathBuf>,
    #[serde(default)]
    context: std::collections::BTreeMap<String, Own>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
struct Own {
    theme: Option<String>,
}

impl Look {
    /// Is any of its flags there? They mean nothing to a command without a console.
    pub fn given(&self) -> Option<&'static str> {
        [
            (self.theme.is_some(), "--theme"),
            (self.ascii, "--ascii"),
            (self.no_ascii, "--no-ascii"),
            (self.mouse, "--mouse"),
            (self.no_mouse, "--no-mouse"),
            (self.keymap.is_some(), "--keymap"),
        ]
        .into_iter()
        .find_map(|(given, name)| given.then_some(name))
    }

    /// Every layer, for a console on this kubeconfig context.
    pub fn resolve(&self, context: &str) -> Result<Looks, Failure> {
        let file = keymap_file().map(|keymap| keymap.with_file_name("config.toml"));
        self.over(context, file.as_deref(), |name| std::env::var(name).ok().filter(|value| !value.is_empty()))
    }

    fn over(&self, context: &str, path: Option<&Path>, env: impl Fn(&str) -> Option<String>) -> Result<Looks, Failure> {
        let file = match path {
            Some(path) => read(path)?,
            None => File::default(),
        };
        let at = || path.map(|path| path.display().to_string()).unwrap_or_default();
        let own = file.context.get(context).and_then(|own| own.theme.clone());
        let theme = match (self.theme, env("LOCKKEEPER_THEME"), own.or(file.theme)) {
            (Some(theme), ..) => theme,
            (None, Some(name), _) => theme_of(&name, "LOCKKEEPER_THEME")?,
            (None, None, Some(name)) => theme_of(&name, &at())?,
            (None, None, None) => ThemeName::default(),
        };
        let switch = |on: bool, off: bool, name: &str, of_file: Option<bool>| match (on, off, env(name)) {
            (true, ..) => Ok(Some(true)),
            (_, true, _) => Ok(Some(false)),
            (_, _, Some(text)) => truth(&text, name).map(Some),
            _ => Ok(of_file),
        };
        let ascii = switch(self.ascii, self.no_ascii, "LOCKKEEPER_ASCII", file.ascii)?;
        let mouse = switch(self.mouse, self.no_mouse, "LOCKKEEPER_MOUSE", file.mouse)?;
        // A path in the file is seen from where the file is.
        let of_file = file.keymap.map(|keymap| path.and_then(Path::parent).map_or(keymap.clone(), |folder| folder.join(&keymap)));
        let keymap = self.keymap.clone().or_else(|| env("LOCKKEEPER_KEYMAP").map(PathBuf::from)).or(of_file);
        Ok(Looks { theme, ascii, mouse: mouse.unwrap_or(false), keymap })
    }
}

fn read(path: &Path) -> Result<File, Failure> {
    let text = match fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(File::default()),
        Err(error) => return Err(Failure::environment(format!("cannot read {}: {error}", path.display()))),
    };
    toml::from_str(&text).map_err(|error| Failure::environment(format!("{}: {}", path.display(), error.to_string().trim_end())))
}

fn theme_of(name: &str, from: &str) -> Result<ThemeName, Failure> {
    ThemeName::from_str(name, false).map_err(|_| {
        let all = ThemeName::ALL.map(ThemeName::as_str).join(", ");
        Failure::usage(format!("{from}: there is no theme {name:?}; there are {all}"))
    })
}

fn truth(text: &str, from: &str) -> Result<bool, Failure> {
    match text.to_ascii_lowercase().as_str() {
        "1" | "true" | "yes" | "on" => Ok(true),
        "0" | "false" | "no" | "off" => Ok(false),
        _ => Err(Failure::usage(format!("{from}={text:?}: want true or false"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NONE: fn(&str) -> Option<String> = |_| None;

    fn file(text: &str) -> (tempfile::TempDir, PathBuf) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("config.toml");
        fs::write(&path, text).unwrap();
        (folder, path)
    }

    #[test]
    fn a_flag_is_over_the_environment_over_the_context_over_the_file() {
        let (_folder, path) = file("theme = \"light\"\nmouse = true\n[context.production]\ntheme = \"high-contrast\"\n");
        let env = |name: &str| (name == "LOCKKEEPER_THEME").then(|| "mono".to_owned());
        let theme = |look: &Look, context: &str, env: &dyn Fn(&str) -> Option<String>| {
            look.over(context, Some(&path), env).unwrap().theme
        };
        let flag = Look { theme: Some(ThemeName::Dark), ..Look::default() };
        assert_eq!(theme(&flag, "production", &env), ThemeName::Dark);
        assert_eq!(theme(&Look::default(), "production", &env), ThemeName::Mono);
        assert_eq!(theme(&Look::default(), "production", &NONE), ThemeName::HighContrast);
        assert_eq!(theme(&Look::default(), "lab", &NONE), ThemeName::Light);
        assert!(Look::default().over("lab", Some(&path), NONE).unwrap().mouse);
        assert!(!Look { no_mouse: true, ..Look::default() }.over("lab", Some(&path), NONE).unwrap().mouse);
        assert_eq!(Look::default().over("lab", None, NONE).unwrap(), Looks::default());
        assert_eq!(Look::default().over("lab", Some(Path::new("/nowhere/config.toml")), NONE).unwrap(), Looks::default());
    }

    #[test]
    fn a_mistake_names_its_place_and_what_is_right() {
        let said = |text: &str| {
            let (_folder, path) = file(text);
            Look::default().over("lab", Some(&path), NONE).unwrap_err().to_string()
        };
        assert!(said("theme = \"pink\"").contains("dark, light, high-contrast, mono"));
        let unknown = said("mouse = true\ncolour = 3\n");
        assert!(unknown.contains("config.toml") && unknown.contains("line 2") && unknown.contains("colour"), "{unknown}");
        let env = |name: &str| (name == "LOCKKEEPER_MOUSE").then(|| "maybe".to_owned());
        let wrong = Look::default().over("lab", None, env).unwrap_err().to_string();
        assert!(wrong.contains("LOCKKEEPER_MOUSE") && wrong.contains("true or false"), "{wrong}");
    }

    #[test]
    fn a_keymap_of_the_file_is_beside_the_file() {
        let (folder, path) = file("keymap = \"mine.toml\"\nascii = false\n");
        let looks = Look::default().over("lab", Some(&path), NONE).unwrap();
        assert_eq!((looks.keymap, looks.ascii), (Some(folder.path().join("mine.toml")), Some(false)));
    }
}
