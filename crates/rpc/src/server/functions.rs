//! Registered functions for servers, which programs in all languages use to start a server or to act as a
//! session process.

use anyfn::{Array, Map, Object, Ref, Result, String as Text, bail, methods, register};
use serde_json::Value;

use super::Server;
use super::config::ServerConfig;
use super::process::session_main;
use super::session::SessionState;

/// Running server. It stops when the last reference to it is dropped.
#[derive(Object)]
#[object(key = "rpc.Server", init = false, final)]
pub struct RunningServer {
    /// Address on which the server listens.
    pub host: Text,
    /// Port on which the server listens.
    pub port: i64,
    #[field(skip)]
    server: Server,
}

#[methods]
impl RunningServer {
    /// Ends all sessions and the server, and removes the folders of both. Repeated calls have no
    /// effect.
    #[blocking]
    pub fn stop(&self) {
        self.server.stop();
    }

    /// Returns a map for each session. Its entries are `number`, `pid`, `peer`, `key` (empty for a client without a key) and
    /// `state`.
    pub fn sessions(&self) -> Result<Array<Map<Text, anyfn::Any>>> {
        let mut all = Vec::new();
        for session in self.server.sessions() {
            let state = match session.state {
                SessionState::Greeting => "greeting",
                SessionState::Proving => "proving",
                SessionState::Waiting => "waiting",
                SessionState::Active => "active",
            };
            let mut map = Map::<Text, anyfn::Any>::new();
            map.insert("number".into(), anyfn::Any::new(i64::try_from(session.number).unwrap_or(i64::MAX))?)?;
            map.insert("pid".into(), anyfn::Any::new(session.pid)?)?;
            map.insert("peer".into(), anyfn::Any::new(session.peer.to_string().as_str())?)?;
            map.insert("key".into(), anyfn::Any::new(session.key.as_deref().unwrap_or_default())?)?;
            map.insert("state".into(), anyfn::Any::new(state)?)?;
            all.push(map);
        }
        Array::try_from_iter(all)
    }
}

/// Starts a server on a thread of this process. `worker` is the command line of its session processes: a program, which must call
/// `rpc.serve_session`, and its arguments. `options` is a JSON object; see `docs/rpc-server.md`.
#[register("rpc.start_server", blocking)]
fn start_server(worker: Vec<String>, #[default("{}")] options: &str) -> Result<Ref<RunningServer>> {
    let options: Value = match serde_json::from_str(options) {
        Ok(options) => options,
        Err(why) => {
            bail!("ValueError", "expected the options of a server as a JSON object, got invalid JSON: {why}")
        }
    };
    let server = Server::start(ServerConfig::from_json(worker, &options)?)?;
    let host = server.address().ip().to_string();
    Ok(Ref::new(RunningServer { host: host.as_str().into(), port: server.port().into(), server }))
}

/// Serves the client that a server has passed to this process. Returns when the session is over.
#[register("rpc.serve_session", blocking)]
fn serve_session() -> Result<()> {
    session_main()
}

/// Creates a new key and returns it as the string `NAME:SECRET`.
#[register("rpc.make_key")]
fn make_key(name: &str) -> Result<Text> {
    Ok(crate::keys::generate_key(name)?.to_text().as_str().into())
}
