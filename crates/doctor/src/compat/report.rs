//! Describes what of an environment works with the replaced library.

use std::fmt::Write;
use std::path::{Path, PathBuf};

use anyfn::{Any, Array, IntoAny, Map, Result, String as Text};

use super::environment::{Environment, Package};
use super::libraries::{self, Client, Library};
use super::swap::{self, Runtime};
use super::{NAME, SUPPORTED};

/// Number of missing symbols that the text lists for each library.
const SHOWN: usize = 5;

/// Description of an environment or of a single library.
pub(super) struct Report {
    /// Path that the user has named.
    path: String,
    parts: Vec<Part>,
}

/// Description of a package, or of a single library.
pub(super) struct Part {
    /// Folder of the packages, or the path of the library.
    path: PathBuf,
    /// The package, unless a single library is described.
    package: Option<Installed>,
    clients: Vec<Client>,
    /// Reasons why the replacement does not work.
    pub(super) problems: Vec<String>,
}

/// The package in an environment, and its library.
struct Installed {
    version: Option<String>,
    runtime: Runtime,
    python: Option<PathBuf>,
}

impl Report {
    /// Describes the environment or the library `path`, for the replacement `ours`.
    ///
    /// # Errors
    /// Returns the reason if `path` is neither.
    pub(super) fn of(path: &str, ours: &Library) -> Result<Report> {
        let parts = if Path::new(path).is_file() {
            vec![Report::of_library(Path::new(path), ours)?]
        } else {
            let environment = Environment::find(path)?;
            let packages = environment.packages.iter();
            packages.map(|package| Report::of_package(&environment, package, ours)).collect::<Result<_>>()?
        };
        Ok(Report { path: path.to_owned(), parts })
    }

    fn of_library(path: &Path, ours: &Library) -> Result<Part> {
        let library = Library::read(path)?;
        let beside = library.needed_beside();
        let clients = libraries::clients(&[library], &beside, ours, None);
        let problems = missing(&clients, path);
        Ok(Part { path: path.to_path_buf(), package: None, clients, problems })
    }

    /// Describes one package of an environment, for the replacement `ours`.
    ///
    /// # Errors
    /// Returns the reason if the present library cannot be read.
    pub(super) fn of_package(environment: &Environment, package: &Package, ours: &Library) -> Result<Part> {
        let (runtime, original) = swap::state(package, ours)?;
        let found = libraries::in_folder(&package.site);
        let clients = libraries::clients(&found, &found, ours, original.as_ref());
        let mut problems = Vec::new();
        match package.version.as_deref() {
            Some(version) if is_supported(version) => {}
            Some(version) => problems.push(format!(
                "apache-tvm-ffi {version} was not tested with this library, only {}",
                SUPPORTED.join(", ")
            )),
            None => {
                problems.push("the version of apache-tvm-ffi is unknown, as its metadata is missing".to_owned())
            }
        }
        if package.python.is_none() {
            problems.push(format!("{} has no interpreter in its folder bin", environment.folder.display()));
        }
        problems.extend(missing(&clients, &package.site));
        let installed = Installed { version: package.version.clone(), runtime, python: package.python.clone() };
        Ok(Part { path: package.site.clone(), package: Some(installed), clients, problems })
    }

    fn works(&self) -> bool {
        self.parts.iter().all(|part| part.problems.is_empty())
    }

    /// Returns the description as a map.
    ///
    /// # Errors
    /// Returns `MemoryError` if memory is exhausted.
    pub(super) fn map(&self) -> Result<Any> {
        let packages = self.parts.iter().filter(|part| part.package.is_some());
        // The part of a single library.
        let part = self.parts.first().filter(|part| part.package.is_none());
        let problems = part.map(|part| part.problems.as_slice()).unwrap_or_default();
        fields([
            ("path", text(&self.path)?),
            ("works", self.works().into_any()?),
            ("packages", list(packages.map(Part::map))?),
            ("libraries", list(part.iter().flat_map(|part| &part.clients).map(client))?),
            ("problems", list(problems.iter().map(|problem| text(problem)))?),
        ])
    }

    /// Returns the description as text.
    pub(super) fn text(&self) -> String {
        self.parts.iter().map(Part::text).collect()
    }
}

impl Part {
    fn map(&self) -> Result<Any> {
        let package = self.package.as_ref();
        let python = package.and_then(|package| package.python.as_ref());
        let version = package.and_then(|package| package.version.as_deref());
        fields([
            ("folder", text(&self.path.to_string_lossy())?),
            ("version", optional(version)?),
            ("runtime", optional(package.map(|package| package.runtime.name()))?),
            ("python", optional(python.map(|python| python.to_string_lossy()).as_deref())?),
            ("libraries", list(self.clients.iter().map(client))?),
            ("problems", list(self.problems.iter().map(|problem| text(problem)))?),
        ])
    }

    fn text(&self) -> String {
        let mut out = String::new();
        // Writing to a string cannot fail.
        let _ = writeln!(out, "{}", self.path.display());
        if let Some(package) = &self.package {
            let version = package.version.as_deref().unwrap_or("of unknown version");
            let _ = writeln!(out, "  package     apache-tvm-ffi {version}");
            let _ = writeln!(out, "  runtime     {}", package.runtime.description());
        }
        let width = self.clients.iter().map(|client| self.name(client).len()).max().unwrap_or_default();
        for (index, client) in self.clients.iter().enumerate() {
            let title = if index == 0 { "libraries" } else { "" };
            let name = self.name(client);
            let _ = write!(out, "  {title:<11} {name:<width$}  {:>3} symbols", client.symbols);
            let _ = match client.missing.len() {
                0 => writeln!(out),
                number => writeln!(out, ", {number} missing"),
            };
        }
        if self.clients.is_empty() {
            let _ = writeln!(out, "  libraries   none need {NAME}");
        }
        for problem in &self.problems {
            let _ = writeln!(out, "  problem     {problem}");
        }
        let verdict = if self.problems.is_empty() { "works" } else { "does not work" };
        let _ = writeln!(out, "  result      {verdict} with the library of anyfn");
        out
    }

    /// Returns the path of a library, relative to the folder of the packages.
    fn name(&self, client: &Client) -> String {
        let relative = client.path.strip_prefix(&self.path).ok().filter(|path| path.components().count() > 0);
        relative.unwrap_or(&client.path).display().to_string()
    }
}

/// Returns the description of a library as a map.
fn client(client: &Client) -> Result<Any> {
    fields([
        ("file", text(&client.path.to_string_lossy())?),
        ("symbols", (client.symbols as i64).into_any()?),
        ("missing", list(client.missing.iter().map(|name| text(name)))?),
    ])
}

/// Returns a problem for each library with missing symbols.
fn missing(clients: &[Client], folder: &Path) -> Vec<String> {
    let lacking = clients.iter().filter(|client| !client.missing.is_empty());
    lacking
        .map(|client| {
            let name = client.path.strip_prefix(folder).unwrap_or(&client.path).display().to_string();
            let name = if name.is_empty() { client.path.display().to_string() } else { name };
            let shown: Vec<&str> = client.missing.iter().take(SHOWN).map(String::as_str).collect();
            let rest = client.missing.len().saturating_sub(SHOWN);
            let more = if rest > 0 { format!(" and {rest} more") } else { String::new() };
            format!("{name} needs symbols that the library of anyfn lacks: {}{more}", shown.join(", "))
        })
        .collect()
}

/// Returns true if a version of apache-tvm-ffi is one of [`SUPPORTED`], with any suffix such as `.post1`.
fn is_supported(version: &str) -> bool {
    SUPPORTED.iter().any(|supported| {
        let rest = version.strip_prefix(supported);
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '+']))
    })
}

fn text(text: &str) -> Result<Any> {
    Any::new(Text::from(text))
}

fn optional(value: Option<&str>) -> Result<Any> {
    value.map_or_else(|| Ok(Any::default()), text)
}

fn list(items: impl Iterator<Item = Result<Any>>) -> Result<Any> {
    Array::<Any>::try_from_iter(items.collect::<Result<Vec<Any>>>()?)?.into_any()
}

fn fields<const N: usize>(fields: [(&str, Any); N]) -> Result<Any> {
    Map::<Text, Any>::try_from_iter(fields.into_iter().map(|(name, value)| (Text::from(name), value)))?
        .into_any()
}

#[cfg(test)]
mod tests {
    use super::is_supported;

    #[test]
    fn suffixes_of_versions_do_not_count() {
        for version in ["0.1.14", "0.1.14.post1", "0.1.15.post2", "0.1.15+local"] {
            assert!(is_supported(version), "{version}");
        }
        for version in ["0.1.1", "0.1.12", "0.1.150", "0.1.15rc1", "0.2.0", ""] {
            assert!(!is_supported(version), "{version}");
        }
    }
}
